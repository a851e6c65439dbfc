"""What is passed over in a list ends nothing: what comes after it is read, counted or told as well."""

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from billing.engine.egress import EgressRate
from clusters.engine.datasets import Place
from clusters.engine.egress import judge
from clusters.engine.flavors import flavors_of
from clusters.engine.inventory import use_of
from federation.engine.failures.diagnoses import History, NeedsLog
from federation.engine.failures.diagnoses import judge as judge_failure
from federation.engine.failures.facts import Facts, PodFacts
from federation.engine.failures.rules import Rule, RuleSet, Step, When
from federation.engine.intake.failure_rules import read_tenants_rules
from federation.engine.intake.policy_reading import read_policy
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.retries import Cause
from federation.engine.tree.kueue import import_kueue
from placement.cycle.cycle import run
from placement.fleet.egress import egress_to
from placement.preemption.trial import Trial
from placement.values.datasets import DataNeed
from placement.values.preemption import HeldPods
from tests.builders import make_spec

from .fleets import A100, H100, NOW, cluster, flavor, job, limit, node, pods, uniform
from .preemption_worlds import full, planned, run_on, world

GIB = 2**30


def faults_of(read, *given):
    with pytest.raises(Refused) as refused:
        read(*given)
    return [(fault.field, fault.code) for fault in refused.value.faults]


def test_every_wrong_entry_of_a_list_is_told():
    when = {"exit_codes": [0, 1, 256, "9-3"], "signals": [0, 9, 65, True]}
    found = faults_of(read_tenants_rules, {"rules": [{"name": "x", "when": when}]})
    assert [field.removeprefix("rules[0].when.") for field, _ in found] == [
        "exit_codes[0]", "exit_codes[2]", "exit_codes[3]", "signals[0]", "signals[2]", "signals[3]",
    ]  # fmt: skip
    secrets = [{"secret": "a"}, {"secret": "b", "env": "B", "file": "/run/secrets/b"}, {"secret": "c"}]
    assert faults_of(read_spec, make_spec(pod={"secrets": secrets}), Rules()) == [
        ("pod_sets[0].secrets[0].env", "required"), ("pod_sets[0].secrets[1].env", "conflict"),
        ("pod_sets[0].secrets[2].env", "required"),
    ]  # fmt: skip
    weights = {"aaa": {}, "pack": {"price": "x"}, "zzz": {}}
    assert [field for field, _ in faults_of(read_policy, {"weights": weights}, "acme")] == [
        "weights.aaa", "weights.pack.price", "weights.zzz",
    ]  # fmt: skip


def test_a_request_that_is_no_amount_hides_none_behind_it():
    requests = {
        "not a name": "1",
        "example.com/a": "x",
        "example.com/b": "2",
        "cpu": "x",
        "memory": "1Mi",
        "hugepages-2Mi": "x",
    }
    found = use_of(SimpleNamespace(requests=requests | {"hugepages-1Gi": "1Gi"}))
    assert (found.cpu_millicores, found.memory_mib, found.pods) == (0, 1, 1)
    assert found.devices == {"example.com/b": 2, "hugepages-1Gi": 1024}


def test_a_device_of_an_implausible_amount_hides_none_behind_it():
    offers, problems = flavors_of({}, {"amd.com/gpu": "many", "nvidia.com/gpu": "8"})
    assert [(one.gpu_model, one.units) for one in offers] == [("unknown", 8)]
    assert len(problems) == 1


def test_of_addresses_the_first_that_may_be_reached_counts():
    found = judge(["nonsense", "127.0.0.1", "93.184.216.34", "8.8.8.8"], 443, allowed=())
    assert found.address == "93.184.216.34"
    assert judge(["127.0.0.1", "nonsense"], 443, allowed=()).why_not == "the resolver did not return an address"


def test_an_empty_document_and_an_unknown_resource_hide_nothing_behind_them():
    queue = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: a}
spec:
  resourceGroups:
    - coveredResources: [pods, cpu]
      flavors: [{name: f, resources: [{name: pods, nominalQuota: 5}, {name: cpu, nominalQuota: 7}]}]
"""
    found = import_kueue([("all.yaml", f"---\n---\n{queue}")])
    assert "nominal: '7'" in found.text
    assert "pods" in " ".join(found.warnings)


def test_a_rule_whose_log_no_pod_has_to_show_lets_the_next_rule_decide():
    logs = Rule("logs", when=When(log=("*lost*",), pod_sets=("other",)))
    other = Rule("other", when=When(exit_codes=((3, 3),)), step=Step.STOP)
    facts = Facts(Cause.PROGRAM, (PodFacts(name="p0", pod_set="main", node="n1", exit_code=3),))
    found = judge_failure([RuleSet("Job", (logs, other))], facts, History(allowed=1))
    assert not isinstance(found, NeedsLog)
    assert found.rule == "Job: other"


def test_data_comes_from_the_cheapest_source_that_has_a_price():
    rates = [
        EgressRate("acme", region, "*", Decimal(price), "USD", NOW) for region, price in (("b", 3), ("d", 2), ("e", 2))
    ]
    need = DataNeed("imagenet", GIB, tuple(Place(region) for region in "abcde"))
    [move] = egress_to(job(data=(need,)), uniform(1, region="z"), rates, NOW).moves
    assert (move.from_region, move.cost) == ("d", 2)


def test_nodes_that_are_gone_or_closed_give_back_nothing_and_the_others_do():
    of = flavor()
    busy = [node("n0", of, 8, 0, is_usable=False, why_unusable="cordoned"), node("n1", of, 8, 4), node("n2", of, 8, 4)]
    one = replace(run_on(1, {"gone": 1, "n0": 1, "n1": 1, "n2": 1}, gpus=4), pods=())
    one = replace(one, pods=(HeldPods(of.name, 4, 1000, 1024, {"gone": 1, "n0": 1, "n1": 1, "n2": 1}),))
    given = world([cluster(1, busy, [of])], [one], job(pods(2, 8), priority=100))
    _, final = run(given)
    assert Trial(given, final, given.queue[0]).state_after([0], [one]).pool(0).free[0].tolist() == [0, 8, 8]


def test_where_quota_refuses_one_flavor_another_of_the_cluster_is_tried():
    dear, cheap = flavor(H100, price="1"), flavor(A100, price="5")
    runs = [run_on(1, {"n0": 1}, gpus=8), run_on(2, {"n1": 1}, gpus=8)]
    runs = [
        replace(one, pods=(replace(one.pods[0], flavor=of.name),), amounts={"gpu": 8000})
        for one, of in zip(runs, (dear, cheap), strict=True)
    ]
    busy = cluster(1, [node("n0", dear, 8, 0), node("n1", cheap, 8, 0)], [dear, cheap])
    limits = [limit("acme/ml", f"gpu:{H100}", 0)]
    found = planned(world([busy], runs, job(pods(1, 8), priority=100), limits)).decision
    assert [one.run.attempt_id.int for one in found.victims] == [2]


def test_what_one_scope_does_not_lend_another_may():
    runs = [run_on(number, {f"c1-n{number - 1}": 1}, gpus=8, tenant="acme/b") for number in (1, 2)]
    here = {"clusters": ("c1",)}
    limits = [
        limit("acme", "gpu", 64_000, 16_000, nominal=64_000, number=900),
        limit("acme", "gpu", 16_000, 16_000, nominal=16_000, number=901, **here),
        limit("acme/a", "gpu", 16_000, 0, nominal=8000, reclaims=True, number=902, **here),
        limit("acme/b", "gpu", 16_000, 16_000, nominal=8000, number=903, **here),
    ]
    given = world([full("aa", runs)], runs, job(pods(1, 8), tenant="acme/a"), limits, preemptors=())
    found = planned(given).decision
    assert [one.loan.clusters for one in found.victims] == [("c1",)]
