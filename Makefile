# Switchyard. `make` alone lists what there is; every target makes its environment first if need be.
.DEFAULT_GOAL := help
.PHONY: help setup serve demo test test-long check lint format fleet kube campaign model mutants simulate migrations audit sbom
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
# A distribution's own Python is built to be fast, and others on the PATH often are not: the gateway then costs a third more.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11))
READY := .venv/.synced
# A run of the tests starts hundreds of processes: without bytecode each would compile Django and all else again.
unexport PYTHONDONTWRITEBYTECODE
# `make` killed with SIGKILL must not leave its command behind either.
TIED := exec setpriv --pdeathsig TERM

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv from the lock; downloads uv if it is missing

$(READY): pyproject.toml uv.lock
	@uv=$$(sh devtools/find_uv.sh) && UV_PYTHON_DOWNLOADS=never $$uv sync --frozen $(addprefix --python ,$(PYTHON)) && touch $@

serve: setup ## Run the gateway in the foreground, on embedded servers unless DATABASE_URL and REDIS_URL are set
	@$(TIED) $(BIN)/python -m devtools.serve

demo: setup ## Like serve, with a simulated fleet of 40 clusters and three months of made-up jobs; prints address and login
	@$(TIED) $(BIN)/python -m devtools.serve --demo

# Folders are run again and again while one works: without what takes seconds. A file, or -m, says exactly what to run.
QUICK = $(if $(or $(findstring .py,$(ARGS)),$(filter -m%,$(ARGS))),,-m "not law and not oracle")
# And by two processes, unless the options need one.
WORKERS ?= 2
SPREAD = $(if $(or $(findstring .py,$(ARGS)),$(filter -n% -s --pdb --cpu%,$(ARGS))),,-n $(WORKERS) --dist loadfile)
test: setup ## Everything that CI runs; ARGS="tests/engine -k gang" runs only pytest with these arguments, without laws and oracles; CHANGED=1 runs those of the engines and rooms that a change may break; CPU=1 names the costliest files
ifneq ($(CHANGED),)
	@$(TIED) $(BIN)/python -m devtools.changed
else ifeq ($(strip $(ARGS)),)
	@$(TIED) $(BIN)/python -m devtools.parts $(if $(CPU),--cpu)
else
	@$(TIED) $(BIN)/python -m pytest $(QUICK) $(SPREAD) $(ARGS)
endif

# Laws of the engines, of the ledger and of quotas, with three times the examples of `make test`.
LAWS = tests/engine tests/rooms/billing tests/rooms/tenancy tests/rooms/federation/test_quota_preview.py tests/concurrency -m "law or oracle"
test-long: setup ## What `make test` leaves out: faults at full length, laws with all their examples, what needs Rust; the better part of an hour
	@uv=$$(sh devtools/find_uv.sh) && UV_PYTHON_DOWNLOADS=never $$uv sync --frozen --quiet --group frameworks --group notebooks $(addprefix --python ,$(PYTHON))
	@$(if $(ARGS),,ALL_EXAMPLES=1 $(TIED) $(BIN)/python -m pytest $(LAWS))
	@LONG_TESTS=1 $(TIED) $(BIN)/python -m pytest $(if $(ARGS),$(ARGS),tests/faults tests/journeys/test_training_goes_on.py tests/journeys/test_real_failures.py tests/journeys/test_real_recipes.py tests/journeys/test_real_session.py tests/simulation/test_protocol_steps.py tests/kube/kubelet/test_suspended.py tests/rooms/federation/test_seed_demo.py tests/rooms/federation/test_real_prometheus.py)

check: setup ## Everything in `make test` except the tests: lint, types, layers, migrations, prose, schema
	@$(BIN)/python -m devtools.check

lint: check ## Same as check

format: setup ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

migrations: setup ## Fail when a model changed without its migration
	@$(BIN)/python -m devtools.check migrations

audit: setup ## Check the locked packages for known vulnerabilities; SOURCE=https://… uses a mirror of OSV
	@$(BIN)/python -m devtools.audit $(if $(SOURCE),--source $(SOURCE))

sbom: setup ## Write the software bill of materials as CycloneDX JSON into OUT=sbom.json
	@$(BIN)/python -m devtools.sbom $(if $(OUT),$(OUT),sbom.json)

N ?= 3
fleet: setup ## N=3 real control planes in the foreground; FLEET=file.yaml names their nodes, OUT=dir gets the kubeconfigs
	@$(TIED) $(BIN)/python -m devtools.localfleet run -n $(N) $(if $(FLEET),--fleet $(FLEET)) $(if $(OUT),--out $(OUT))

kube: setup ## Build the control planes' programs (once; needs Go)
	@$(TIED) $(BIN)/python -m devtools.localfleet build

MINUTES ?= 120
SEED ?= 1
campaign: setup ## Every fault for MINUTES=120 from SEED=1 under load, on real servers and control planes, judged; TRACE=file is the load
	@$(TIED) $(BIN)/python -m benchmarks.campaign --minutes $(MINUTES) --seed $(SEED) $(if $(TRACE),--trace $(TRACE)) $(ARGS)

COUNT ?= 200
mutants: setup ## COUNT=200 one-token mutants of the engines from SEED=1, on a copy; names those that no test catches
	@$(TIED) $(BIN)/python -m devtools.mutants --count $(COUNT) --seed $(SEED) $(ARGS)

model: setup ## Explore the model of the dispatch protocol and its mutants; prints JSON (needs Rust; takes minutes)
	@$(TIED) $(BIN)/python -m devtools.model $(ARGS)

SEEDS ?= 100
FROM ?= 1
simulate: setup ## SEEDS=100 deterministic simulations FROM=1, each judged; ARGS="--shrink" makes a failing one smaller
	@$(TIED) $(BIN)/python -m devtools.simulation --seeds $(SEEDS) --from $(FROM) $(ARGS)

bench-%: setup ## One benchmark, such as bench-placement; ARGS go to it
	@$(TIED) $(BIN)/python -m benchmarks.$(subst -,_,$*) $(ARGS)
