"""What dry runs say of a credential, and which writes are tried."""

from uuid import UUID

import pytest

from clusters.engine.escapes import Answered, confinement_findings, duties, escapes, has_policies, judged
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.isolation import namespace_policies
from federation.engine.objects.job_secrets import secret_manifests
from federation.engine.objects.meeting import gang_service
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from federation.engine.objects.resource_claims import Claimable, resource_claim_templates
from tests.builders import make_spec

GROUPS = ("batch", "resource.k8s.io")
FOREIGN = [("default", "theirs")]
NEW, OLD = "v1.31.0", "v1.30.9"


def answers(rehearsals, *, would, reason="because"):
    return [Answered(each, would, reason) for each in rehearsals]


def findings(escaping, working, version=NEW):
    found = judged(answers(escapes(GROUPS, "x", FOREIGN), would=escaping), answers(duties(GROUPS, "x"), would=working))
    return found.holds, [reason.code for reason in confinement_findings(found, version)]


@pytest.mark.parametrize(
    ("escaping", "working", "expected"),
    [
        (False, True, (True, [])),
        (True, True, (False, ["excess_permission"])),
        (None, True, (False, ["unproven_permission"])),
        (False, False, (False, ["missing_permission"])),
        (False, None, (False, ["unproven_permission"])),
        (None, False, (False, ["unproven_permission", "missing_permission"])),
        (True, False, (False, ["excess_permission"])),
    ],
)
def test_only_a_plain_refusal_of_each_escape_and_a_plain_yes_to_each_duty_will_do(escaping, working, expected):
    assert findings(escaping, working) == expected


@pytest.mark.parametrize(("version", "advice"), [(OLD, "Upgrade it to 1.31 or later"), (NEW, "older manifest")])
def test_an_open_escape_is_told_with_what_closes_it_on_this_cluster(version, advice):
    found = judged(answers(escapes((), "x"), would=True), ())
    [finding] = confinement_findings(found, version)
    assert advice in finding.message
    assert "create Jobs in kube-system" in finding.message


def test_a_clusters_own_reason_is_told_in_brief():
    found = judged((), answers(duties((), "x")[:1], would=False, reason="x" * 999 + "."))
    assert found.hindered == (f"create namespaces ({'x' * 300})",)
    assert judged((), answers(duties((), "x")[:1], would=False, reason="")).hindered == ("create namespaces",)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.31.0", True), ("1.30.12", False), ("v2.0", True), ("v0.99", False), ("v1.31+gke", True), ("", True)],
)
def test_clusters_since_131_have_the_policies(version, expected):
    assert has_policies(version) == expected


def test_device_claims_are_tried_only_where_the_cluster_has_them():
    for tried in (escapes, duties):
        plain, all_of_it = (
            {(each.api, each.resource, each.verb) for each in tried(groups, "x")} for groups in ((), GROUPS)
        )
        assert all_of_it - plain == {("resource.k8s.io/v1", "resourceclaimtemplates", "apply")}


def test_an_escape_is_a_duty_with_one_thing_changed():
    """Otherwise a cluster could refuse it for another reason, and the escape itself would stay unproven."""

    def leaves(manifest, path=()):
        if isinstance(manifest, dict):
            return {leaf for key, value in manifest.items() for leaf in leaves(value, (*path, key))}
        return {(path, repr(manifest))}

    accepted = {each.resource: leaves(each.manifest) for each in duties(GROUPS, "x")}
    changed = {
        each.what: {path[:5] for path, _ in accepted[each.resource] ^ leaves(each.manifest)}
        for each in escapes(GROUPS, "x")
        if each.resource in accepted
    }
    pod = ("spec", "template", "spec")
    labels = ("metadata", "labels")
    security = "pod-security.kubernetes.io/enforce"
    assert changed.pop("create a namespace without labels")
    assert changed == {
        "create a namespace of privileged pods": {(*labels, security)},
        "create a namespace that is not named after it": {("metadata", "name")},
        "create Jobs in kube-system": {("metadata", "namespace")},
        "create Jobs in default": {("metadata", "namespace")},
        "create a Job of privileged pods that see the whole node": {
            (*pod, name) for name in ("containers", "volumes", "hostPID", "hostNetwork")
        },
        "create a Job that runs as any ServiceAccount": {(*pod, "serviceAccountName")},
        "create a Job on control-plane nodes": {(*pod, "tolerations")},
        "open other software's pods with a NetworkPolicy": {
            ("metadata", "namespace"), ("metadata", "name"), ("spec", "ingress"),
        },
        "open a tenant's namespace with a NetworkPolicy": {("spec", "ingress")},
        "claim all devices of a class": {("spec", "spec", "devices", "requests")},
        "name other software's pods with a Service": {("metadata", "namespace")},
        "open a Service to the outside": {("spec", "type"), ("spec", "clusterIP"), ("spec", "ports")},
        "send a Service's clients to other pods": {
            ("spec", "selector", "switchyard.dev/attempt"), ("spec", "selector", "app"),
        },
    }  # fmt: skip


def test_each_escape_and_each_duty_is_one_write_of_one_object():
    assert [(one.verb, one.api, one.resource, one.namespace, one.name) for one in duties(GROUPS, "x")] == [
        ("create", "v1", "namespaces", "", "swy-probe-x"),
        ("create", "batch/v1", "jobs", "swy-probe", "swy-probe-x"),
        ("apply", "networking.k8s.io/v1", "networkpolicies", "swy-probe", "switchyard"),
        ("create", "v1", "services", "swy-probe", "swy-probe-x"),
        ("apply", "resource.k8s.io/v1", "resourceclaimtemplates", "swy-probe", "swy-claim-x"),
    ]
    assert [(one.verb, one.resource, one.namespace, one.name) for one in escapes(GROUPS, "x", FOREIGN)] == [
        *(("create", "namespaces", "", name) for name in ("swy-probe-x", "swy-probe-x", "probe-x")),
        *(("create", "jobs", where, "swy-probe-x") for where in ("kube-system", "default", *["swy-probe"] * 3)),
        ("apply", "networkpolicies", "kube-system", "swy-probe-x"),
        ("apply", "networkpolicies", "swy-probe", "switchyard"),
        *(("create", "services", where, "swy-probe-x") for where in ("kube-system", "swy-probe", "swy-probe")),
        ("create", "secrets", "kube-system", "swy-s-x"),
        ("create", "secrets", "swy-probe", "swy-s-x"),
        ("connect", "pods", "kube-system", "swy-probe-x"),
        ("change", "pods", "default", "theirs"),
        ("apply", "resourceclaimtemplates", "swy-probe", "swy-claim-x"),
    ]


def test_creating_secrets_is_a_duty_only_of_a_credential_that_may():
    more = {one.what: one for one in duties(GROUPS, "x", with_secrets=True)}
    assert set(more) - {one.what for one in duties(GROUPS, "x")} == {"create Secrets"}
    duty = more["create Secrets"].manifest
    whose = Identity("probe", UUID(int=1), "probe", UUID(int=2), UUID(int=3), 1, "probe")
    use = {"secret": "s", "env": "S", "key": "s0", "id": str(UUID(int=9)), "version": 1}
    promised = {"object": duty["metadata"]["name"], "uses": [use]}
    owner = ("probe", duty["metadata"]["ownerReferences"][0]["uid"])
    [rendered] = secret_manifests(promised, "swy-probe", whose, owner, {(UUID(int=9), 1): b"probe"})
    rendered["metadata"]["labels"] = dict.fromkeys(rendered["metadata"]["labels"], "probe")
    assert rendered == duty


def test_a_duty_is_what_the_gateway_writes_but_for_its_labels():
    pod = {"name": "probe", "image": "registry.example/probe:1", "cpu": "1", "memory": "1Mi", "command": []}
    stored = spec_json(read_spec(make_spec(pod=pod, deadline_seconds=60), Rules()))
    whose = Identity("probe", UUID(int=1), "probe", UUID(int=2), UUID(int=3), 1, "probe")
    rendered = render_job(stored, 0, whose, Devices())
    namespace, job, policy, service, template = (one.manifest for one in duties(GROUPS, "x"))

    probes = dict.fromkeys(whose.labels, "probe")
    rendered["metadata"] = {"name": "swy-probe-x", "namespace": "swy-probe", "labels": probes}
    rendered["spec"]["template"]["metadata"] = {"labels": probes}
    del rendered["spec"]["podFailurePolicy"]
    (container,) = rendered["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "SWITCHYARD_JOB_ID", "value": "probe"}]
    assert job == rendered

    assert namespace == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "swy-probe-x",
            "labels": {**namespace_labels("probe", "probe"), "pod-security.kubernetes.io/enforce-version": "latest"},
        },
    }
    (closed,) = namespace_policies("swy-probe", "probe", ())
    assert policy == closed | {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    probe = gang_service("swy-probe", UUID(int=3), probes, {"probe": "probe"})
    probe["metadata"]["name"], probe["spec"]["selector"] = "swy-probe-x", {"switchyard.dev/attempt": "probe"}
    assert service == probe
    (claimed,) = resource_claim_templates("swy-probe", "probe", Claimable("probe", ""), 1)
    claimed["metadata"]["name"] = "swy-claim-x"
    del claimed["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"]
    assert template == claimed


def test_what_an_escape_would_gain_is_in_its_manifest():
    tried = {one.what: one.manifest for one in escapes(GROUPS, "x", FOREIGN)}
    pod = tried["create a Job of privileged pods that see the whole node"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["hostPID"], pod["hostNetwork"]) == (True, True)
    assert pod["volumes"] == [{"name": "node", "hostPath": {"path": "/"}}]
    assert container == {
        "name": "probe",
        "image": "registry.example/probe:1",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "node", "mountPath": "/node"}],
    }
    labels = tried["create a namespace of privileged pods"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert tried["create a namespace without labels"]["metadata"]["labels"] == {}
    account, control_plane = (
        tried[f"create a Job {how}"]["spec"]["template"]["spec"]
        for how in ("that runs as any ServiceAccount", "on control-plane nodes")
    )
    assert account["serviceAccountName"] == "probe"
    assert control_plane["tolerations"] == [{"operator": "Exists"}]
    for whose in ("other software's pods", "a tenant's namespace"):
        assert tried[f"open {whose} with a NetworkPolicy"]["spec"]["ingress"] == [{}]
    (request,) = tried["claim all devices of a class"]["spec"]["spec"]["devices"]["requests"]
    assert request == {"name": "devices", "exactly": {"deviceClassName": "probe", "allocationMode": "All"}}
    token = tried["make a ServiceAccount's token"]
    assert (token["type"], token["data"]) == ("kubernetes.io/service-account-token", {})
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "default"}
    assert tried["change pods in default"] == {
        "metadata": {"name": "theirs", "namespace": "default", "annotations": {"switchyard.dev/probe": "1"}}
    }
