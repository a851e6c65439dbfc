"""Policies of tenants: they narrow down the tree, set defaults and weights, and are named in reasons."""

from pathlib import Path

import pytest

from federation.engine.intake.policy_reading import policy_json, read_policy
from federation.engine.intake.reading import Refused
from placement.answers.quotes import capacity, quote
from placement.cycle.cycle import decide
from placement.fleet.policies import NO_POLICY, Policy, PolicyBook
from placement.ranking.feasibility import never_fits
from placement.ranking.strategies import weights_of
from placement.values.model import StrategyWeights, TenantPolicy
from placement.values.strategies import BOUNDS, STRATEGIES

from .fleets import A100, cluster, flavor, job, node, pods, snapshot, uniform


def policy(path="acme", **says):
    return TenantPolicy(path, **says)


def decided(fleet, asked, *policies):
    decisions = decide(snapshot(fleet, [asked], policies=policies))
    return (*decisions.placements, *decisions.waits)[0]


def test_a_cluster_must_be_allowed_by_every_policy_on_the_path():
    fleet = [uniform(n, region=region) for n, region in ((1, "eu-1"), (2, "eu-2"), (3, "us-1"))]
    above, below = policy(regions=("eu-*",)), policy("acme/ml", clusters=("c2", "c3"))
    assert decided(fleet, job(), above, below).cluster == "c2"
    wait = decided(fleet, job(), above, policy("acme/ml", clusters=("c3",)))
    assert (wait.code, [reason.code for reason in wait.per_cluster]) == ("held_by_policy", ["excluded_by_policy"] * 3)
    assert wait.per_cluster[0].message == "the policy of acme/ml allows only the clusters c3"
    assert wait.per_cluster[2].message == "the policy of acme allows only the regions eu-*"
    assert not any(reason.is_for_good for reason in wait.per_cluster)


def test_a_policy_holds_for_its_tenant_and_below_and_nowhere_else():
    fleet = [uniform(1), uniform(2)]
    other = (
        policy("acme/m", clusters=("c2",)),
        policy("globex", clusters=("c2",)),
        policy("acme/ml/x", clusters=("c2",)),
    )
    assert decided(fleet, job(), *other).cluster == "c1"
    assert decided(fleet, job(tenant="acme/ml/x/y"), *other).cluster == "c2"


def test_flavors_and_capacity_types_are_left_out_inside_a_cluster():
    cheap, dear = flavor(A100, price="1", capacity_type="spot", name="a-spot"), flavor(A100, price="3", name="a")
    fleet = [cluster(1, [node("n1", cheap, 8), node("n2", dear, 8)], [cheap, dear])]
    assert decided(fleet, job()).pod_sets[0].flavor == "a-spot"
    assert decided(fleet, job(), policy(capacity_types=("on_demand",))).pod_sets[0].flavor == "a"
    assert decided(fleet, job(), policy(flavors=("a",))).pod_sets[0].flavor == "a"
    wait = decided(fleet, job(), policy(flavors=("h*",)))
    assert wait.per_cluster[0].message == "the policy of acme allows only the flavors h*"


def test_a_cluster_without_room_is_told_before_one_that_policy_leaves_out():
    wait = decided([uniform(1), uniform(2, free=0)], job(), policy(clusters=("c2",)))
    assert (wait.code, wait.message.partition(":")[0]) == ("waiting_for_capacity", "c2")


def test_the_nearest_default_that_all_allow_counts():
    book = PolicyBook([policy(default_strategy="pack"), policy("acme/ml", strategies=("cheapest", "spread"))])
    assert book.of("acme").default_strategy == "pack"
    assert book.of("acme/ml").default_strategy == "cheapest"
    assert book.of("globex") is NO_POLICY
    assert book.of("acme/ml/a") is book.of("acme/ml/b")
    assert NO_POLICY.default_strategy == "balanced"
    none = Policy((policy(strategies=("pack",)), policy("acme/ml", strategies=("spread",))))
    assert none.default_strategy == "balanced"


def test_a_queued_job_whose_strategy_is_no_longer_allowed_is_ranked_by_the_default():
    fleet = [uniform(1, of=flavor(price="1")), uniform(2, of=flavor(price="2"), nodes=8)]
    asked = job(strategy="cheapest")
    assert decided(fleet, asked).cluster == "c1"
    only = policy(strategies=("pack",), default_strategy="pack")
    by_pack = decided(fleet, job(strategy="pack"))
    assert decided(fleet, asked, only).cluster == by_pack.cluster


def test_own_weights_rank_and_the_nearest_count_strategy_by_strategy():
    fleet = [uniform(1, of=flavor(price="1"), free=2), uniform(2, of=flavor(price="3"))]
    assert decided(fleet, job()).cluster == "c1"
    free = policy(weights=(StrategyWeights("balanced", price=0.0, free=-5.0),))
    assert decided(fleet, job(), free).cluster == "c2"
    near = policy("acme/ml", weights=(StrategyWeights("balanced", price=9.0),))
    assert decided(fleet, job(), free, near).cluster == "c1"
    both = PolicyBook([free, near])
    assert weights_of("balanced", both.of("acme/ml")).free == STRATEGIES["balanced"].free
    assert weights_of("cheapest", both.of("acme/ml")) == STRATEGIES["cheapest"]


def test_quotes_capacity_and_never_fits_go_by_policies():
    fleet, only = [uniform(1), uniform(2)], policy(clusters=("c2",))
    known = snapshot(fleet, [], policies=[only])
    assert [offer.placement.cluster for offer in quote(job(), known).offers] == ["c2"]
    assert [reason.code for reason in quote(job(), known).why_not] == ["excluded_by_policy"]
    assert [(room.cluster, room.count) for room in capacity(job(pods(1, 8)), known).clusters] == [("c1", 0), ("c2", 4)]
    reasons = never_fits(job(), fleet, policy=Policy((policy(clusters=("c3",)),)))
    assert [(reason.code, reason.is_for_good) for reason in reasons] == [("excluded_by_policy", True)] * 2


FULL = {
    "default_strategy": "cheapest",
    "default_priority_class": "batch",
    "consolidation": "willing",
    "strategies": ["balanced", "cheapest"],
    "clusters": ["eu-*", "north"],
    "regions": ["eu-*"],
    "capacity_types": ["on_demand"],
    "flavors": ["h100*"],
    "weights": {"balanced": {"price": "1.5", "free": "-0.25"}},
}


def test_a_policy_is_read_as_it_is_written():
    read = read_policy(FULL, "acme")
    assert policy_json(read) == FULL
    assert read_policy(policy_json(read), "acme") == read
    assert read_policy({}, "acme") == TenantPolicy("acme")


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ([], "", "wrong_type"),
        ({"strategy": "pack"}, "strategy", "unknown_field"),
        ({"default_strategy": "best"}, "default_strategy", "unknown_value"),
        ({"default_strategy": ["pack"]}, "default_strategy", "unknown_value"),
        ({"default_strategy": "pack", "strategies": ["spread"]}, "default_strategy", "not_allowed"),
        ({"strategies": "pack"}, "strategies", "wrong_type"),
        ({"strategies": ["best"]}, "strategies[0]", "bad_format"),
        ({"clusters": ["No Name"]}, "clusters[0]", "bad_format"),
        ({"clusters": ["a"] * 101}, "clusters", "too_many"),
        ({"regions": [7]}, "regions[0]", "wrong_type"),
        ({"capacity_types": ["free"]}, "capacity_types[0]", "bad_format"),
        ({"flavors": ["h 100"]}, "flavors[0]", "bad_format"),
        ({"weights": []}, "weights", "wrong_type"),
        ({"weights": {"best": {}}}, "weights.best", "unknown_field"),
        ({"weights": {"pack": {"luck": "1"}}}, "weights.pack.luck", "unknown_field"),
        ({"weights": {"pack": {"price": 1}}}, "weights.pack.price", "wrong_type"),
        ({"weights": {"pack": {"price": "NaN"}}}, "weights.pack.price", "bad_format"),
        ({"weights": {"pack": {"price": "1e3"}}}, "weights.pack.price", "bad_format"),
        ({"weights": {"pack": {"price": "1" * 16}}}, "weights.pack.price", "bad_format"),
        ({"weights": {"pack": {"price": "1" * 17}}}, "weights.pack.price", "too_long"),
        ({"weights": {"pack": {"price": "-1"}}}, "weights.pack.price", "out_of_range"),
        ({"weights": {"pack": {"free": "10.001"}}}, "weights.pack.free", "out_of_range"),
    ],
)
def test_a_bad_policy_is_refused_by_field(body, field, code):
    with pytest.raises(Refused) as refused:
        read_policy(body, "acme")
    assert (field, code) in {(fault.field, fault.code) for fault in refused.value.faults}


def test_the_page_has_the_bounds():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "policies.md").read_text()
    for term, (least, most) in BOUNDS.items():
        assert f"| `{term}` | {least} | {most} |" in page


def test_a_job_without_a_priority_class_has_that_of_the_nearest_policy_that_sets_one():
    book = PolicyBook([policy(default_priority_class="batch"), policy("acme/ml"), policy("globex")])
    assert [book.of(path).default_priority_class for path in ("acme", "acme/ml", "globex")] == ["batch", "batch", ""]
    nearer = PolicyBook([policy(default_priority_class="batch"), policy("acme/ml", default_priority_class="night")])
    assert nearer.of("acme/ml/x").default_priority_class == "night"


def test_the_nearest_policy_says_which_jobs_may_move():
    assert Policy().consolidation == "never"
    book = PolicyBook([policy(consolidation="any"), policy("acme/ml"), policy("acme/ml/x", consolidation="never")])
    assert [book.of(path).consolidation for path in ("acme", "acme/ml", "acme/ml/x", "globex")] == [
        "any", "any", "never", "never",
    ]  # fmt: skip
