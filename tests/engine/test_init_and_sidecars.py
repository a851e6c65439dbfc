"""Init steps and sidecars of a pod set: what is refused, how they are rendered, and what they hold."""

import pytest
from hypothesis import given

from clusters.drivers.kubernetes.requests import effective_requests
from clusters.engine.quantities import parse
from clusters.engine.versions import runs_sidecars
from federation.engine.intake.init_and_sidecars import containers_of, with_secrets
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.job_secrets import lay_secrets
from federation.engine.objects.mounts import lay_mounts
from federation.engine.objects.rendering import Devices, Identity, render_job
from foundation.ids import new_id
from tests.builders import make_spec, stored_spec
from tests.pod_security import violations

from .specs import specs

STEP = {"image": "tools:1", "command": ["fetch", "/scratch"]}
SIDECAR = {"name": "logs", "image": "shipper:2", "cpu": "500m", "memory": "512Mi"}
OWN = {"cpu": "2", "memory": "4Gi"}
H100 = Devices("nvidia", "on_demand", "nvidia.com/gpu", 8)


def identity():
    return Identity("here", new_id(), "acme", new_id(), new_id(), 1, "0" * 32)


def rendered(stored, devices=H100):
    return render_job(stored, 0, identity(), devices)["spec"]["template"]["spec"]


def faults(**pod):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod={**OWN, **pod}), Rules())
    return {fault.field: fault.code for fault in refused.value.faults}


@pytest.mark.parametrize(
    ("pod", "field", "code"),
    [
        ({"init": [STEP] * 9}, "init", "too_many"),
        ({"init": STEP}, "init", "wrong_type"),
        ({"init": ["fetch"]}, "init[0]", "wrong_type"),
        ({"init": [{}]}, "init[0].image", "required"),
        ({"init": [{**STEP, "cpu": "2001m"}]}, "init[0].cpu", "out_of_range"),
        ({"init": [{**STEP, "memory": "5Gi"}]}, "init[0].memory", "out_of_range"),
        ({"init": [{**STEP, "cpu": "-1"}]}, "init[0].cpu", "out_of_range"),
        ({"init": [{**STEP, "gpu": {"count": 1}}]}, "init[0].gpu", "unknown_field"),
        ({"init": [{**STEP, "restartPolicy": "Always"}]}, "init[0].restartPolicy", "unknown_field"),
        ({"init": [{**STEP, "env": {"LD_PRELOAD": "/x"}}]}, "init[0].env.LD_PRELOAD", "not_allowed"),
        ({"init": [{**STEP, "image": "10.0.0.1/x"}]}, "init[0].image", "not_allowed"),
        ({"init": [{**STEP, "secrets": "yes"}]}, "init[0].secrets", "wrong_type"),
        ({"init": [{**STEP, "secrets": True}]}, "init[0].secrets", "conflict"),
        (
            {"init": [{**STEP, "env": {"A": "b"}, "secrets": True}], "secrets": [{"secret": "s", "env": "A"}]},
            "init[0].env",
            "duplicate",
        ),
        ({"init": [STEP], "name": "init-1"}, "name", "duplicate"),
        ({"sidecars": [{**SIDECAR, "name": f"a{n}"} for n in range(5)]}, "sidecars", "too_many"),
        ({"sidecars": [SIDECAR, SIDECAR]}, "sidecars[1].name", "duplicate"),
        ({"sidecars": [{**SIDECAR, "name": "main"}]}, "sidecars[0].name", "duplicate"),
        ({"init": [STEP], "sidecars": [{**SIDECAR, "name": "init-1"}]}, "sidecars[0].name", "duplicate"),
        ({"sidecars": [{**SIDECAR, "name": "A b"}]}, "sidecars[0].name", "bad_format"),
        ({"sidecars": [{"name": "a", "image": "b", "memory": "1Gi"}]}, "sidecars[0].cpu", "required"),
        ({"sidecars": [{**SIDECAR, "securityContext": {}}]}, "sidecars[0].securityContext", "unknown_field"),
    ],
)
def test_what_is_no_init_step_or_sidecar_is_refused_by_its_path(pod, field, code):
    assert faults(**pod).get(f"pod_sets[0].{field}") == code


@pytest.mark.law
@given(specs)
def test_placement_counts_a_pod_as_kubernetes_does_and_its_containers_have_no_privileges(value):
    stored = spec_json(read_spec(value, Rules()))
    request = request_of(stored, job_id=new_id(), tenant_path="acme", shape="")
    for position, pod_set in enumerate(request.pod_sets):
        pod = render_job(stored, position, identity(), Devices())["spec"]["template"]["spec"]
        own = [one["resources"]["requests"] for one in pod["containers"]]
        beside = [(one["resources"]["requests"], "restartPolicy" in one) for one in pod.get("initContainers", ())]
        asked = effective_requests(own, beside)
        assert parse(asked["cpu"]) * 1000 == pod_set.cpu_millicores
        assert 0 <= pod_set.memory_mib * 2**20 - parse(asked["memory"]) < 2**20
        assert violations(pod) == []
        names = [one["name"] for one in (*pod["containers"], *pod.get("initContainers", ()))]
        assert names == containers_of(stored["pod_sets"][position])
        assert len({*names}) == len(names)


def test_steps_come_in_their_order_and_sidecars_after_them_without_devices():
    stored = stored_spec(
        pod={**OWN, "init": [STEP, {**STEP, "cpu": "1", "memory": "1Gi"}], "sidecars": [SIDECAR], "gpu": {"count": 8}}
    )
    pod = rendered(stored)
    first, second, sidecar = pod["initContainers"]
    assert [one["name"] for one in pod["initContainers"]] == ["init-1", "init-2", "logs"]
    assert [one.get("restartPolicy") for one in pod["initContainers"]] == [None, None, "Always"]
    assert first["resources"]["limits"] == {**OWN, "ephemeral-storage": "64Gi"}
    assert second["resources"]["limits"] == {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "64Gi"}
    assert sidecar["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "0"}
    for one in pod["initContainers"]:
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in one["env"]
        assert one["securityContext"] == pod["containers"][0]["securityContext"]


def test_each_runs_its_own_command_with_its_own_variables():
    step = {**STEP, "args": ["--all"], "env": {"A": "b"}}
    pod = rendered(stored_spec(pod={**OWN, "init": [step, {"image": "tools:1"}], "sidecars": [SIDECAR]}), Devices())
    first, second, sidecar = pod["initContainers"]
    assert (first["command"], first["args"]) == (["fetch", "/scratch"], ["--all"])
    assert {"name": "A", "value": "b"} in first["env"]
    for bare in (second, sidecar):
        assert not {"command", "args"} & set(bare)
        assert "A" not in {variable["name"] for variable in bare["env"]}


def test_they_have_the_storages_and_scratch_of_the_program_and_secrets_only_on_request():
    stored = stored_spec(
        pod={
            **OWN,
            "scratch": {"size": "1Gi"},
            "secrets": [{"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/run/secrets/t"}],
            "init": [STEP, {**STEP, "secrets": True}],
            "sidecars": [SIDECAR],
        }
    )
    pod = rendered(stored, Devices())
    lay_mounts(
        pod,
        [{"storage": "data", "claim": "c", "path": "/data", "sub_path": "t", "read_only": True, "is_writable": False}],
    )
    uses = [{"env": "TOKEN", "key": "s0"}, {"file": "/run/secrets/t", "key": "s0"}]
    lay_secrets(pod, {"object": "swy-s-x", "uses": uses}, with_secrets(stored["pod_sets"][0]))
    plain, trusted, sidecar = pod["initContainers"]
    for one in (plain, sidecar):
        assert {mount["mountPath"] for mount in one["volumeMounts"]} == {"/scratch", "/data"}
        assert "TOKEN" not in {variable["name"] for variable in one["env"]}
    assert {mount["mountPath"] for mount in trusted["volumeMounts"]} == {"/scratch", "/data", "/run/secrets/t"}
    assert "TOKEN" in {variable["name"] for variable in trusted["env"]}
    own = pod["containers"][0]["volumeMounts"]
    assert all(mount in own for one in pod["initContainers"] for mount in one["volumeMounts"])


def test_sidecars_change_what_placement_sees_and_init_steps_do_not():
    plain, step, beside = (stored_spec(pod={**OWN, **more}) for more in ({}, {"init": [STEP]}, {"sidecars": [SIDECAR]}))
    assert shape_of(plain) == shape_of(step) != shape_of(beside)
    [pod_set] = request_of(beside, job_id=new_id(), tenant_path="acme", shape="").pod_sets
    assert (pod_set.cpu_millicores, pod_set.memory_mib) == (2500, 4096 + 512)
    assert not {"init", "sidecars"} & {*plain["pod_sets"][0]}


@pytest.mark.parametrize(
    ("version", "runs"),
    [
        ("v1.30.14", False),
        ("v1.31.0", True),
        ("v1.36.2-gke.1", True),
        ("v2.0.0", True),
        ("", True),
        ("simulated", True),
    ],
)
def test_a_cluster_says_by_its_version_whether_it_runs_sidecars(version, runs):
    assert runs_sidecars(version) is runs
