"""The published role is the same in the manifest, in the engine and in the comparison."""

import re
import time
from pathlib import Path

import pytest
import yaml

from clusters.engine.addresses import NEVER_REACHED
from clusters.engine.inventory import INSTALL_LABEL
from clusters.engine.permissions import (
    CREATE_SECRETS,
    EVERY_ACCOUNT_HAS,
    FORMERLY,
    MOST_EXCESS,
    MOST_RULES,
    MOST_TERMS,
    NAMESPACE,
    OF_GANGS,
    OF_SESSIONS,
    OPTIONAL_RIGHTS,
    ROLE,
    SERVICE_ACCOUNT,
    TELLTALES,
    Comparison,
    Right,
    compare,
    compare_asked,
    needed,
)
from clusters.engine.taints import tolerations_for
from clusters.operations.probing import Probe, access_findings
from federation.engine.intake.spec import MAX_COMPLETIONS, MAX_COUNT, MAX_SECONDS
from federation.engine.names import PREFIX
from federation.engine.objects.isolation import NODE_LOCAL_DNS, POLICY_NAME
from federation.engine.objects.ranks import GATE
from federation.engine.objects.rendering import EPHEMERAL_STORAGE_LIMIT, KUEUE_TOPOLOGY
from federation.engine.objects.resource_claims import MOST_PER_CLAIM
from tests.apiserver import published_rules

MANIFEST = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cluster-access.yaml"
RULES = published_rules()


def manifest(kind):
    return [document for document in yaml.safe_load_all(MANIFEST.read_text()) if document["kind"] == kind]


def test_the_manifest_grants_exactly_the_role():
    [role] = manifest("ClusterRole")
    granted = {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == ROLE


def test_the_manifest_binds_the_role_to_the_account_alone():
    [binding] = manifest("ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}]
    assert binding["roleRef"]["name"] == manifest("ClusterRole")[0]["metadata"]["name"]
    assert manifest("RoleBinding") == manifest("Role") == []


def test_every_policy_denies_and_fails_closed_and_is_for_the_account_alone():
    policies, bindings = manifest("ValidatingAdmissionPolicy"), manifest("ValidatingAdmissionPolicyBinding")
    for policy, binding in zip(policies, bindings, strict=True):
        [condition] = policy["spec"]["matchConditions"]
        if "pods" not in policy["metadata"]["name"] or "changes" in policy["metadata"]["name"]:
            assert condition["expression"].endswith(f'"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"')
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert {validation["reason"] for validation in policy["spec"]["validations"]} == {"Forbidden"}
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_no_label_of_a_namespace_exempts_it_from_what_confines_the_account():
    for policy in manifest("ValidatingAdmissionPolicy"):
        selector = policy["spec"]["matchConstraints"].get("namespaceSelector")
        adds = {"matchExpressions": [{"key": INSTALL_LABEL, "operator": "Exists"}]}
        assert selector in (None, adds)
        assert (selector is None) == ("the-writer-is-switchyard" in str(policy["spec"]["matchConditions"]))


def test_every_kind_that_the_role_writes_has_a_policy_and_the_last_one_refuses_all_others():
    *policies, last = manifest("ValidatingAdmissionPolicy")
    looked_at = {
        (rule["apiGroups"][0], resource)
        for policy in policies
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    left_out = {
        (rule["apiGroups"][0], resource)
        for rule in last["spec"]["matchConstraints"]["excludeResourceRules"]
        if "authentication.k8s.io" not in rule["apiGroups"]
        for resource in rule["resources"]
    }
    written = {(right.group, right.resource) for right in ROLE if right.verb in {"create", "patch", "delete"}}
    assert written <= looked_at == left_out
    assert [validation["expression"] for validation in last["spec"]["validations"]] == ["false"]


def test_the_policies_know_the_taints_addresses_and_bounds_of_the_code():
    text = MANIFEST.read_text()
    keys = {t["key"] for v in ("nvidia", "amd", "google", "intel") for t in tolerations_for(v, "spot")}
    tolerated = re.search(r"each\.\?key\.orValue\(\"\"\) in \[(.*?)\]", text, re.DOTALL)
    assert set(re.findall(r'"([^"]+)"', tolerated[1])) == keys | {t["key"] for t in tolerations_for("", "reserved")}
    never = re.search(r"has\(peer\.ipBlock\).*?\? \[(.*?)\]\.all\(block", text, re.DOTALL)
    assert set(re.findall(r'"([^"]+)"', never[1])) == {str(block) for block in NEVER_REACHED}
    for bound in (MAX_COUNT, MAX_COMPLETIONS, MAX_SECONDS, MOST_PER_CLAIM):
        assert f"<= {bound}" in text
    for word in (
        GATE,
        NODE_LOCAL_DNS,
        EPHEMERAL_STORAGE_LIMIT,
        POLICY_NAME,
        f"{PREFIX}claim-",
        *KUEUE_TOPOLOGY.values(),
    ):
        assert f'"{word}"' in text


def test_the_role_reads_no_secrets_and_starts_no_shells():
    for right in ROLE:
        assert right.resource != "secrets" or right.verb == "create"
        assert right.resource not in {"pods/exec", "pods/attach", "serviceaccounts/token", "nodes/proxy"}
        assert "*" not in (right.group, right.resource, right.verb)
        assert right.verb not in {"escalate", "impersonate", "bind"}


def test_a_credential_of_an_earlier_manifest_creates_no_secrets_and_lacks_nothing():
    assert ROLE - needed({"resource.k8s.io"}) == {CREATE_SECRETS} | OF_SESSIONS
    older = [rule for rule in RULES if rule["resources"] != ["secrets"]]
    assert len(older) == len(RULES) - 1
    assert compare([older] * 3, needed({"resource.k8s.io"})) == Comparison(missing=(), excess=())
    for verb in ("get", "list", "watch", "delete", "update", "patch", "deletecollection"):
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": [verb]}
        assert compare([[*RULES, rule]]).excess == (Right("", "secrets", verb),)


def test_rights_that_earlier_manifests_granted_only_read_and_are_no_harm():
    """They are an excess of the role, of a kind that a thief has no use for."""
    read = {(right.group, right.resource) for right in ROLE if right.verb in {"get", "list", "create"}}
    for right in FORMERLY:
        assert right.verb in {"get", "list"}
        assert (right.group, right.resource) in read | {("", "events")}
    assert FORMERLY.isdisjoint(ROLE | TELLTALES | EVERY_ACCOUNT_HAS)
    for right in FORMERLY:
        rule = {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        assert compare([[*RULES, rule]]).excess == (right,)


def test_rights_that_may_be_missing_are_of_the_role_and_no_right_that_must_not_be_had_is():
    assert OF_GANGS | OPTIONAL_RIGHTS <= ROLE
    assert TELLTALES.isdisjoint(ROLE | EVERY_ACCOUNT_HAS)


def test_the_published_rules_fit():
    assert compare([RULES, RULES, RULES]) == Comparison(missing=(), excess=())
    assert Comparison((), ()) == Comparison((), (), 0, "")


def test_rights_on_an_api_that_is_not_served_are_not_missed_and_never_too_much():
    devices = {right for right in ROLE if right.group == "resource.k8s.io"}
    older = [rule for rule in RULES if rule["apiGroups"] != ["resource.k8s.io"]]
    assert devices
    assert compare([older], needed({"apps", "batch"})) == compare([RULES], needed({"apps"})) == Comparison((), ())
    assert set(compare([older], needed({"resource.k8s.io"})).missing) == devices
    assert compare_asked([older], ROLE - devices, needed(())) == Comparison((), ())
    assert set(compare_asked([older], ROLE - devices).missing) == devices


def test_nothing_granted_lacks_the_whole_role():
    assert set(compare([[]]).missing) == ROLE


def test_a_wildcard_grants_the_role_and_is_too_much():
    found = compare([[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]])
    assert found.missing == ()
    assert found.excess == (Right("*", "*", "*"),)


def test_a_wildcard_verb_on_a_resource_of_the_role_is_too_much():
    found = compare([[*RULES, {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]])
    assert found.excess == (Right("", "pods", "*"),)


def test_a_right_to_named_objects_does_not_stand_for_the_whole_resource():
    rules = [rule for rule in RULES if rule["resources"] != ["nodes"]]
    rules.append(
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"], "resourceNames": ["n1"]}
    )
    found = compare([rules])
    assert {str(right) for right in found.missing} == {"list nodes", "watch nodes"}
    assert {str(right) for right in found.excess} == {
        "get nodes named n1",
        "list nodes named n1",
        "watch nodes named n1",
    }


def test_a_right_in_one_namespace_is_told_and_does_not_stand_for_the_cluster():
    only_here = [*RULES, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    without_jobs = [rule for rule in RULES if rule["apiGroups"] != ["batch"]]
    found = compare([only_here, without_jobs])
    assert found.excess == (Right("", "secrets", "get"),)
    assert {right.resource for right in found.missing} == {"jobs"}


@pytest.mark.parametrize(
    "rule", [{}, {"verbs": ["get"]}, {"resources": ["secrets"]}, {"apiGroups": None, "resources": None}]
)
def test_a_rule_that_grants_nothing_counts_for_nothing(rule):
    assert compare([[*RULES, rule]]) == compare([RULES])


def test_a_rule_of_billions_of_combinations_is_judged_by_its_terms():
    many = [f"t{n}" for n in range(2000)]
    started = time.process_time()
    found = compare([[*RULES, {"apiGroups": many, "resources": many, "verbs": many, "resourceNames": many}]])
    assert time.process_time() - started < 1
    assert found.missing == ()
    assert len(found.excess) == MOST_EXCESS
    assert found.more_excess == 2000**4 - MOST_EXCESS


def test_what_is_too_much_is_counted_to_the_last_right():
    rule = {
        "apiGroups": ["", "batch"],
        "resources": ["pods", "jobs", "secrets"],
        "verbs": ["get", "list", "create", "get"],
    }
    found = compare([[*RULES, rule]])
    product_of_all = {
        Right(group, resource, verb)
        for group in ("", "batch")
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert set(found.excess) == product_of_all - ROLE
    assert found.more_excess == 0


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([{"verbs": ["get"]}] * (MOST_RULES + 1), f"{MOST_RULES + 1} rules"),
        ([{"verbs": [f"v{n}" for n in range(MOST_TERMS)]}], f"{MOST_TERMS + 2} terms"),
        ([{"resources": ["x" * 100_000], "verbs": ["get"]}], "100000 characters"),
    ],
)
def test_a_list_of_rules_beyond_all_measure_is_refused_in_words(rules, told):
    found = compare([RULES, rules])
    assert told in found.unreadable
    [reason] = access_findings(Probe("uid", "v1.36.2", 0, found, has_kueue=False))
    assert (reason.code, told in reason.message) == ("excess_permission", True)
    assert len(reason.message) < 300
    assert compare_asked([rules], set(ROLE)).unreadable == found.unreadable


def test_rules_of_the_most_terms_are_compared():
    most = {"verbs": [f"v{n}" for n in range(MOST_TERMS - 2)]}
    assert compare([[most]]).missing
