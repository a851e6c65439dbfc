"""How the pods of a gang find each other: ranks, names and variables, over every shape of gang."""

import json
from hashlib import blake2s
from itertools import accumulate
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine import names
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import MAX_COUNT, Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.meeting import MOST_HOSTS_BYTES, gang_service, meeting_of
from federation.engine.objects.ranks import wishes_of
from federation.engine.objects.rendering import Devices, Identity, render_job
from tests.builders import make_spec

ID = UUID(int=3)
WHOSE = Identity("main", UUID(int=1), "acme/research", UUID(int=2), ID, 4, "0" * 32)
SERVICE = "swy-aaaaaaaaaaaaaaaaaaaaaaaaam"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
OURS = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "SWITCHYARD_FIRST_RANK", "SWITCHYARD_HOSTS_FILE"}
gangs = st.lists(st.integers(1, 12), min_size=1, max_size=6).filter(lambda counts: sum(counts) > 1)


def stored(*counts, **changes):
    sets = [{**make_spec()["pod_sets"][0], "name": f"set-{n}", "count": count} for n, count in enumerate(counts)]
    return spec_json(read_spec(make_spec(pod_sets=sets, **changes), Rules(allow_simulation=True)))


def rendered(spec, whose=WHOSE):
    return [render_job(spec, position, whose, Devices()) for position in range(len(spec["pod_sets"]))]


def environment(job, index):
    """The variables of the pod with this index, as a kubelet fills them in."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": INDEX}}
        found[variable["name"]] = variable.get("value", str(index))
    return found


def hosts_file(job):
    """The file in each pod, as a kubelet writes it."""
    template = job["spec"]["template"]
    (volume,) = template["spec"]["volumes"]
    ((item,),) = [volume["downwardAPI"]["items"]]
    assert item["fieldRef"] == {"fieldPath": "metadata.annotations['switchyard.dev/hosts']"}
    (mount,) = template["spec"]["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    return f"{mount['mountPath']}/{item['path']}", template["metadata"]["annotations"]["switchyard.dev/hosts"]


def pods(jobs):
    """(job, index) of every pod."""
    return [(job, index) for job in jobs for index in range(job["spec"]["completions"])]


@given(gangs)
def test_every_rank_is_the_line_of_its_pod_and_no_pod_has_a_wrong_one(counts):
    jobs = rendered(stored(*counts))
    told = [environment(job, index) for job, index in pods(jobs)]
    path, text = hosts_file(jobs[0])
    lines = text.splitlines()
    assert len(lines) == len(set(lines)) == len(told) == sum(counts)
    for rank, ((job, index), mine) in enumerate(zip(pods(jobs), told, strict=True)):
        assert lines[rank] == f"{job['metadata']['name']}-{index}.{SERVICE}.{WHOSE.namespace}.svc"
        assert mine.get("NODE_RANK", str(rank)) == str(rank)
        assert int(mine["SWITCHYARD_FIRST_RANK"]) + index == rank
        assert mine["MASTER_ADDR"] == lines[0]
        assert (mine["MASTER_PORT"], mine["WORLD_SIZE"]) == ("29500", str(sum(counts)))
        assert mine["SWITCHYARD_HOSTS_FILE"] == path == "/etc/switchyard/hosts"
        assert hosts_file(job)[1] == text


@given(gangs)
def test_a_rank_is_missing_only_where_kubernetes_would_have_to_add_it_up(counts):
    for position, job in enumerate(rendered(stored(*counts))):
        is_told = position == 0 or counts[position] == 1
        assert ("NODE_RANK" in environment(job, 0)) == is_told


@given(gangs)
def test_every_pod_is_in_the_service_of_its_attempt_alone(counts):
    jobs = rendered(stored(*counts))
    uids = {job["metadata"]["name"]: f"uid-{n}" for n, job in enumerate(jobs)}
    service = gang_service(WHOSE.namespace, ID, WHOSE.labels, uids)
    assert service["metadata"]["name"] == jobs[0]["metadata"]["name"]
    assert service["spec"]["selector"] == {"switchyard.dev/attempt": str(ID)}
    for job in jobs:
        template = job["spec"]["template"]
        assert template["spec"]["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert {one["uid"] for one in service["metadata"]["ownerReferences"]} == set(uids.values())


def test_a_service_is_rendered_to_these_members_and_no_others():
    assert gang_service("swy-a", ID, WHOSE.labels, {SERVICE: "u"}) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": SERVICE,
            "namespace": "swy-a",
            "labels": WHOSE.labels,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": SERVICE, "uid": "u"}],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"switchyard.dev/attempt": str(ID)},
        },
    }


def test_ranks_follow_the_racks_because_pods_are_placed_by_index():
    """Two racks of two nodes: the first half of the ranks is in the first rack, whatever the order of scheduling."""
    racks = [
        {"nodes": [["a", 2], ["b", 1]], "domain": [{"rack": "r1"}]},
        {"nodes": [["c", 3]], "domain": [{"rack": "r2"}]},
    ]
    (job,) = rendered(stored(6))
    by_rank = {}
    for index in range(6):
        _, wish = wishes_of(racks, index)
        by_rank[int(environment(job, index)["NODE_RANK"])] = wish["preference"]["matchExpressions"][0]["values"][0]
    assert [by_rank[rank] for rank in range(6)] == ["r1"] * 3 + ["r2"] * 3


def test_a_tenant_that_was_renamed_since_changes_no_name_of_an_attempt():
    renamed = Identity("main", UUID(int=1), "acme/other", UUID(int=2), ID, 4, "0" * 32, "swy-research-00000001")
    (job,) = rendered(stored(2), renamed)
    assert job == rendered(stored(2))[0] | {"spec": job["spec"]}
    assert environment(job, 1)["MASTER_ADDR"] == f"{SERVICE}-0.{SERVICE}.swy-research-00000001.svc"


@pytest.mark.parametrize("counts", [(2,), (1, 1), (3, 1)])
def test_a_jobs_own_variables_win_and_may_refer_to_the_gangs(counts):
    given_env = {"MASTER_PORT": "12345", "URL": "tcp://$(MASTER_ADDR):$(MASTER_PORT)", "NODE_RANK": "7"}
    sets = [{**make_spec()["pod_sets"][0], "name": f"s{n}", "count": c, "env": given_env} for n, c in enumerate(counts)]
    for job in rendered(spec_json(read_spec(make_spec(pod_sets=sets), Rules()))):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        order = [variable["name"] for variable in container["env"]]
        assert len(order) == len(set(order))
        assert given_env.items() <= {variable["name"]: variable.get("value") for variable in container["env"]}.items()
        assert order.index("MASTER_ADDR") < order.index("URL"), "only earlier variables can be referred to"


def test_a_gang_too_large_for_the_file_has_names_all_the_same():
    spec = stored(MAX_COUNT, MAX_COUNT)
    jobs = rendered(spec)
    for job, first in zip(jobs, (0, MAX_COUNT), strict=True):
        template = job["spec"]["template"]
        assert template["spec"]["subdomain"] == SERVICE
        assert "annotations" not in template["metadata"]
        assert {"volumes"}.isdisjoint(template["spec"])
        told = environment(job, 5)
        assert "SWITCHYARD_HOSTS_FILE" not in told
        assert (told["WORLD_SIZE"], told["SWITCHYARD_FIRST_RANK"]) == (str(2 * MAX_COUNT), str(first))


@given(st.integers(500, 1000), st.sampled_from(["a", "a" * 48]))
def test_the_file_ends_where_its_bytes_would_pass_the_limit(count, name):
    whose = Identity("main", UUID(int=1), f"acme/{name}", UUID(int=2), ID, 4, "0" * 32)
    meeting = meeting_of(stored(count), ID, whose.namespace)
    size = sum(len(host) + 1 for host in meeting.hosts())
    assert len(meeting.hosts_text) == (size if size <= MOST_HOSTS_BYTES else 0)
    assert len(json.dumps(meeting.annotations())) < 256 * 1024


def test_hostnames_are_labels_of_dns():
    longest = names.object_name(UUID(int=2**128 - 1), 15)
    assert names.dns_label(f"{longest}-{MAX_COUNT - 1}")


@pytest.mark.parametrize(("counts", "changes"), [((1,), {}), ((1,), {"completions": 5}), ((4,), {"completions": 5})])
def test_a_single_pod_and_a_queue_of_tasks_meet_nobody(counts, changes):
    (job,) = rendered(stored(*counts, **changes))
    template = job["spec"]["template"]
    assert {"subdomain", "volumes"}.isdisjoint(template["spec"])
    assert OURS.isdisjoint(environment(job, 0))


def test_as_many_completions_as_pods_are_a_gang():
    assert meeting_of(stored(4, completions=4), ID, "swy-a").size == 4


PROGRAM = {"command": ["python", "a.py"], "args": ["-v"], "env": {"EPOCHS": "3"}, "cpu": "1500m", "memory": "2Gi"}
SIMULATED = {"sim.switchyard.dev/run-seconds": "5"}


@pytest.mark.parametrize(
    ("changes", "devices", "simulated", "digest"),
    [
        ({"pod": PROGRAM}, Devices(), False, "9e3a86bc49c3dd7ea7cfc71e89957f41"),
        (
            {"pod": {**PROGRAM, "gpu": {"count": 8}}}, Devices("nvidia", "spot", "nvidia.com/gpu", 8), False,
            "81ec2259c7dad4dd549e20f7f6a09b5b",
        ),
        ({"pod": {"count": 10}, "completions": 1000}, Devices(), True, "a616c9afd3f2f90a41d443d29ef5ca29"),
        ({"completions": 3, "labels": SIMULATED}, Devices(), True, "b5837838ea3f4c0ba577ecc6f0305a20"),
    ],
)  # fmt: skip
def test_a_job_that_uses_none_of_it_is_rendered_as_ever(changes, devices, simulated, digest):
    """To the byte, as before gangs had names; pods with GPUs have a larger /dev/shm besides."""
    spec = spec_json(read_spec(make_spec(**changes), Rules(allow_simulation=True)))
    assert {"ports", "shm", "scratch"}.isdisjoint(spec["pod_sets"][0])
    job = render_job(spec, 0, WHOSE, devices, simulated=simulated)
    pod = job["spec"]["template"]["spec"]
    if devices.units:
        assert pod.pop("volumes") == [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
        assert pod["containers"][0].pop("volumeMounts") == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert blake2s(json.dumps(job).encode(), digest_size=16).hexdigest() == digest


def test_ranks_begin_where_the_sets_before_have_ended():
    meeting = meeting_of(stored(3, 1, 5), ID, "swy-a")
    assert [meeting.first_rank(position) for position in range(3)] == list(accumulate((3, 1), initial=0))
