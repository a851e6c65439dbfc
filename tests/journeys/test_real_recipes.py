"""The recipes for MPI without ssh and for Ray run as their page has them: on fewer nodes, with small programs, under the real launchers."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane
from devtools.trial import Gateway
from tests.journeys.workload import TEAM, Run, joined
from tests.recipes import RECIPES, SCRIPTS, recipe_with

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(300)]
NODES, PER_NODE = 2, 2
WORKERS = 2
FLEET = """
clusters:
  - name: launched
    region: local
    nodes:
      - {name: cpu, count: 3, runs: true, cpu: 8, memory_gib: 16}
"""
SCRIPT = "/opt/mpi.sh"
ADDS_UP = "from mpi4py import MPI; c = MPI.COMM_WORLD; n = c.allreduce(c.rank)"
SAYS = "print('rank', c.rank, 'of', c.size, 'on', MPI.Get_processor_name(), 'sum', n, flush=True)"
DRIVER = f"""
import socket, time
import ray

ray.init(address="auto")
while sum(node["Alive"] for node in ray.nodes()) < 1 + {WORKERS}:
    time.sleep(0.5)

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def host():
    time.sleep(1)
    return socket.gethostname()

print("hosts", *sorted(set(ray.get([host.remote() for _ in range(8)]))), flush=True)
"""
FAILS = "c.Abort(41) if c.rank == c.size - 1 else c.recv()"


@pytest.fixture(scope="module")
def launcher() -> None:
    """What the images of the recipes have."""
    if not Path(sys.executable).with_name("mpiexec").exists() or not (find_spec("mpi4py") and find_spec("ray")):
        pytest.fail("MPICH or Ray is missing: `make test-long` brings it, and so does `uv sync --group frameworks`")


@pytest.fixture(scope="module")
def plane(launcher: None, root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "launched", FLEET) as found:
        yield found


def simulation(name: str, *lines: str):
    """The job of the page, at the size of this fleet."""
    recipe = recipe_with(SCRIPT)
    [pods] = recipe["pod_sets"]
    command = ["sh", "-c", SCRIPTS[SCRIPT], SCRIPT, "python", "-c", "; ".join(lines)]
    size = {"count": NODES, "cpu": "4", "memory": "2Gi", "shm": "1Gi"}
    pods = {**pods, **size, "command": command, "env": {**pods["env"], "PER_POD": str(PER_NODE)}}
    return {**recipe, "tenant": TEAM, "name": name, "pod_sets": [pods], "constraints": {"clusters": ["launched"]}}


def log_of(gateway: Gateway, job_id: str) -> str:
    return "".join(pod["text"] or "" for pod in gateway.get(f"/jobs/{job_id}/logs")["items"])


@pytest.mark.usefixtures("plane")
def test_mpi_runs_without_ssh_and_fails_as_its_program_does(gateway):
    run = Run(gateway)
    good = run.submit(simulation("good", ADDS_UP, SAYS))
    run.wait_until_all_ended()
    text = log_of(gateway, good)
    assert run.states() == {good: "succeeded"}, text
    said = sorted(line.split() for line in text.splitlines() if line.startswith("rank "))
    assert [(line[1], line[3], line[7]) for line in said] == [(str(rank), "4", "6") for rank in range(4)], text
    hosts = [line[5] for line in said]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3], "the ranks are numbered pod by pod"

    bad = run.submit(simulation("bad", ADDS_UP, FAILS))
    run.wait_until_all_ended()
    assert run.states() == {good: "succeeded", bad: "failed"}
    assert gateway.get(f"/jobs/{bad}")["exit_code"] == 41, log_of(gateway, bad)


@pytest.mark.usefixtures("plane")
def test_ray_runs_tasks_on_its_workers_and_all_pods_end_with_its_driver(gateway):
    [recipe] = [recipe for recipe in RECIPES if recipe["name"] == "tune"]
    head, worker = recipe["pod_sets"]
    size = {"cpu": "2", "memory": "3Gi", "shm": "1Gi"}
    env = {"DRIVER": DRIVER, "RAY_USAGE_STATS_ENABLED": "0"}
    [start] = head["args"]
    assert "python driver.py" in start
    head = {**head, **size, "env": env, "args": [start.replace("python driver.py", 'python -c "$DRIVER"')]}
    worker = {name: value for name, value in worker.items() if name != "gpu"} | size | {"count": WORKERS}
    place = {"constraints": {"clusters": ["launched"]}}
    run = Run(gateway)
    job = run.submit({**recipe, "tenant": TEAM, "pod_sets": [head, worker], **place})
    run.wait_until_all_ended()
    text = log_of(gateway, job)
    assert run.states() == {job: "succeeded"}, text
    [hosts] = [line.split()[1:] for line in text.splitlines() if line.startswith("hosts ")]
    assert len(hosts) == WORKERS, text
