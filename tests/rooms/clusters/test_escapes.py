"""Registration proves that a stolen credential does no harm, and believes nothing but a plain answer."""

import msgspec
import pytest

from clusters.engine.escapes import (
    OLDEST_WITH_POLICIES,
    Answered,
    confinement_findings,
    duties,
    escapes,
    has_policies,
    judged,
)
from clusters.models import Cluster, ClusterCredential
from clusters.operations import escapes as trying
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.isolation import namespace_policies
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from federation.engine.objects.resource_claims import Claimable, resource_claim_templates
from foundation.ids import new_id
from tests.apiserver import before_the_policies, confined
from tests.builders import bearer, make_spec

pytestmark = pytest.mark.django_db
URL = "/api/v1/clusters"
GROUPS = {"batch", "resource.k8s.io"}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(trying, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def headers(admin):
    return bearer(admin)


def refusal(answer):
    assert not Cluster.everything.exists()
    assert not ClusterCredential.objects.exists()
    problem = answer.json()
    return answer.status_code, problem["code"], {error["detail"] for error in problem["errors"]}


def test_the_earlier_manifest_is_refused_in_words_that_say_what_to_apply(api, register):
    api.dry_run = before_the_policies
    answer = register(api.body())
    status, code, details = refusal(answer)
    assert (status, code) == (422, "excess_permission")
    assert "a stolen credential could: create a namespace of privileged pods" in details
    assert "a stolen credential could: create a namespace without labels" in details
    assert "(/clusters/access.yaml), run `kubectl apply -f cluster-access.yaml`" in answer.json()["detail"]
    assert api.token not in answer.content.decode()


@pytest.mark.parametrize("what", [each.what for each in escapes(GROUPS, "x", [("default", "strange")])])
def test_each_escape_alone_is_enough_to_be_refused(api, register, what):
    api.groups = ["batch", "resource.k8s.io"]
    [open_one] = [each for each in escapes(GROUPS, "x", [("default", "strange")]) if each.what == what]

    def all_but_one(path, body):
        is_it = shape(body) == shape(open_one.manifest) and body["metadata"].get("namespace", "") == open_one.namespace
        return (201, "") if is_it else confined(path, body)

    api.dry_run = all_but_one
    status, code, details = refusal(register(api.body()))
    assert (status, code) == (422, "excess_permission")
    assert f"a stolen credential could: {what}" in details


def shape(manifest):
    """What it says, its names aside."""
    without = {**manifest, "metadata": {k: v for k, v in manifest["metadata"].items() if k != "name"}}
    name = manifest["metadata"]["name"]
    return msgspec.json.encode(without, order="sorted"), name.startswith("swy-"), name == "switchyard"


@pytest.mark.parametrize(
    "answer",
    [(400, "the webhook does not support dry run"), (404, "not found"), (409, "conflict"), (410, "gone"), (422, "invalid"),
     (500, "the webhook timed out"), (503, "unavailable")],
)  # fmt: skip
def test_an_answer_that_is_neither_yes_nor_no_registers_nothing_and_says_so(api, register, answer):
    api.dry_run = lambda path, body: answer if "hostPID" in str(body) else confined(path, body)
    refused = register(api.body())
    status, code, details = refusal(refused)
    assert (status, code) == (422, "unproven_permission")
    assert details == {f"no clear answer: create a Job of privileged pods that see the whole node ({answer[1]})"}
    assert "no clear answer to dry runs" in refused.json()["detail"]


def test_a_taken_name_means_that_everything_else_agreed(api, register):
    def taken(handler):
        handler.say(409, {"kind": "Status", "reason": "AlreadyExists", "message": "exists", "code": 409})

    api.answers["/apis/batch/v1/namespaces/kube-system/jobs"] = taken
    assert "a stolen credential could: create Jobs in kube-system" in refusal(register(api.body()))[2]


@pytest.mark.parametrize("word", ["namespaces", "jobs", "networkpolicies"])
def test_a_cluster_that_refuses_what_the_gateway_must_write_is_refused(api, register, word):
    api.dry_run = lambda path, body: (403, "Kyverno says no") if word in path else confined(path, body)
    status, code, details = refusal(register(api.body()))
    assert (status, code) == (422, "missing_permission")
    assert any("Kyverno says no" in detail for detail in details)


def test_policies_that_were_applied_just_now_are_waited_for(api, register):
    asked = []

    def heeded_later(path, body):
        asked.append(path)
        return confined(path, body) if len(asked) > 20 else before_the_policies(path, body)

    api.dry_run = lambda path, body: heeded_later(path, body) if path == "/api/v1/namespaces" else confined(path, body)
    assert register(api.body()).status_code == 422
    asked.extend([""] * 20)
    assert register(api.body()).status_code == 201


def test_nothing_is_tried_but_by_dry_runs_and_no_more_than_a_few(api, register):
    assert register(api.body()).status_code == 201
    writes = [path for method, path, _ in api.seen if method in {"POST", "PATCH", "PUT", "DELETE"}]
    tried = [path for path in writes if "reviews" not in path]
    assert all("dryRun=All" in path for path in tried)
    assert len(tried) <= 24, "of each kind of object that the gateway writes, its escapes and one duty"
    assert not any(method in {"PUT", "DELETE"} for method, _, _ in api.seen)


def test_an_older_cluster_is_told_what_it_needs(api, register):
    api.dry_run = before_the_policies
    api.answers["/version"] = lambda handler: handler.say(200, {"gitVersion": "v1.29.4"})
    told = register(api.body()).json()["detail"]
    assert "Kubernetes v1.29.4" in told
    assert "1.31 or later" in told


@pytest.mark.parametrize(
    ("version", "has"),
    [("v1.30.9", False), ("v1.31.0-gke.1", True), ("1.36", True), ("v2.0.0", True), ("", True), ("v1", True), ("v1." + "9" * 99, True)],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version, has):
    assert has_policies(version) is has
    assert OLDEST_WITH_POLICIES == (1, 31)


def test_a_registered_cluster_with_the_earlier_manifest_is_degraded_and_not_lost(api, register, client, headers):
    cluster_id = register(api.body()).json()["id"]

    def probed():
        shown = client.post(f"{URL}/{cluster_id}/probe", headers=headers).json()
        return shown["state"], [reason["code"] for reason in shown["reasons"]]

    api.dry_run = before_the_policies
    assert probed() == ("degraded", ["excess_permission"])
    api.rules = [*api.rules, {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}]
    assert probed() == ("degraded", ["excess_permission"])
    renewed = client.patch(
        f"{URL}/{cluster_id}", {"token": api.token}, content_type="application/json", headers=headers
    )
    assert (renewed.status_code, renewed.json()["state"]) == (200, "degraded")
    api.dry_run = lambda path, body: (500, "trouble") if "hostPID" in str(body) else confined(path, body)
    assert probed() == ("degraded", ["excess_permission", "unproven_permission"])
    api.dry_run, api.rules = confined, api.rules[:-1]
    assert probed() == ("ready", [])


def test_a_cluster_whose_manifest_is_from_before_the_services_of_gangs_works_on_and_says_so(
    api, register, client, headers
):
    def without_services():
        api.rules = [rule for rule in api.rules if rule["resources"] != ["services"]]
        api.dry_run = lambda path, body: (403, "no services") if path.endswith("/services") else confined(path, body)

    rules, dry_run = api.rules, api.dry_run
    without_services()
    status, code, details = refusal(register(api.body()))
    assert (status, code) == (422, "missing_permission")
    assert {"missing: create services", "missing: get services"} <= details
    api.rules, api.dry_run = rules, dry_run
    cluster_id = register(api.body()).json()["id"]
    without_services()
    shown = client.post(f"{URL}/{cluster_id}/probe", headers=headers).json()
    [reason] = shown["reasons"]
    assert (shown["state"], reason["code"]) == ("degraded", "missing_permission")
    for told in ("create services", "no job of several pods starts there", "kubectl apply -f cluster-access.yaml"):
        assert told in reason["message"]
    renewed = client.patch(
        f"{URL}/{cluster_id}", {"token": api.token}, content_type="application/json", headers=headers
    )
    assert (renewed.status_code, renewed.json()["state"]) == (200, "degraded")


def test_a_renewed_credential_with_more_than_any_manifest_ever_gave_is_refused(api, register, client, headers):
    cluster_id = register(api.body()).json()["id"]
    api.rules = [*api.rules, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    answer = client.patch(f"{URL}/{cluster_id}", {"token": api.token}, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")


def test_only_plain_answers_count():
    [first, *_] = escapes((), "x")
    [duty, *_] = duties((), "x")
    assert judged([Answered(first, would=False)], [Answered(duty, would=True)]).holds
    for escaping, working in (
        ([Answered(first, would=True)], []),
        ([Answered(first, would=None)], []),
        ([], [Answered(duty, would=False)]),
        ([], [Answered(duty, would=None)]),
    ):
        found = judged(escaping, working)
        assert not found.holds
        assert confinement_findings(found, "v1.36.2")


def keys_of(thing):
    """The shape of a manifest: its members' names, all the way down."""
    if isinstance(thing, dict):
        return {
            key: keys_of(value) for key, value in thing.items() if key not in {"labels", "env", "name", "namespace"}
        }
    return [keys_of(each) for each in thing] if isinstance(thing, list) else type(thing).__name__


def test_what_is_tried_as_the_gateways_work_is_what_the_gateway_renders():
    whose = Identity("probe", new_id(), "acme", new_id(), new_id(), 1, "0" * 32)
    stored = spec_json(read_spec(make_spec(), Rules()))
    rendered = render_job(stored, 0, whose, Devices())
    tried = {each.resource: each.manifest for each in duties(GROUPS, "x")}
    job = tried["jobs"]
    assert set(job["metadata"]["labels"]) == set(job["spec"]["template"]["metadata"]["labels"]) == set(whose.labels)
    without = {key: value for key, value in rendered["spec"].items() if key != "podFailurePolicy"}
    for known in ("command", "args"):
        without["template"]["spec"]["containers"][0].pop(known, None)
    assert keys_of(job["spec"]) == keys_of(without)
    container, rendered_one = (each["template"]["spec"]["containers"][0] for each in (job["spec"], without))
    for field in ("securityContext", "imagePullPolicy"):
        assert container[field] == rendered_one[field]
    assert set(namespace_labels("probe", "probe")) <= set(tried["namespaces"]["metadata"]["labels"])
    [wall] = namespace_policies("swy-probe", "probe", ())
    assert tried["networkpolicies"]["metadata"] == wall["metadata"]
    [template] = resource_claim_templates("swy-probe", "probe", Claimable("probe", "true"), 1)
    assert keys_of(tried["resourceclaimtemplates"]["metadata"]) == keys_of(template["metadata"])
