"""Whose turn comes first: laws of fair share, judged by a plain model that computes every share anew."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.shares import share_lines
from placement.cycle.cycle import Cycle, decide
from placement.cycle.fair_share import OWN, Turns
from placement.fleet.fleet import FleetIndex
from placement.fleet.totals import Capacities, totals_of
from placement.values.decisions import Placement
from placement.values.model import TenantPolicy
from placement.values.shares import COUNTED, FairShare, PastCapacity, TenantShare
from tests.laws import examples

from .fleets import A100, H100, cluster, flavor, job, limit, node, pods, snapshot, uniform
from .test_placement_laws import TENANTS
from .test_quotes import fair_shares, ordered


def tenant(path, weight=1.0, gpus=0, used=0.0):
    return TenantShare(path, weight, {"gpu": gpus * 1000}, {"gpu": used * 1000})


def fair(*tenants, strength=1.0):
    return FairShare(tenants, strength)


def fleet(gpus=8, **more):
    """One node with that many GPUs and more than enough of everything else."""
    made = node("n0", flavor(), gpus, cpu=10**9, memory=10**9, pods=10_000)
    return [cluster(1, [made], [flavor()], owner_path=more.pop("owner_path", ""), **more)]


def wanted(tenant_path, count, gpus=1, **more):
    return [job(pods(1, gpus), tenant=tenant_path, shape=f"{gpus}", **more) for _ in range(count)]


def placed(given_snapshot):
    """The GPUs that each tenant gets in one cycle."""
    tenants = {one.id: (one.tenant_path, one.pod_sets[0].gpu.count) for one in given_snapshot.queue}
    found = Counter()
    for placement in decide(given_snapshot).placements:
        path, gpus = tenants[placement.job_id]
        found[path] += gpus
    return found


class Plain:
    """The order as its definition reads: every turn sums up every share of every level anew."""

    def __init__(self, given_snapshot):
        self.shares = given_snapshot.fair_share
        self.capacities = Capacities([(one, totals_of(one)) for one in given_snapshot.clusters])
        self.weights = {one.path: one.weight for one in self.shares.tenants}
        self.amounts = [
            (one.path, [one.held.get(r, 0) + self.shares.strength * one.used.get(r, 0) for r in COUNTED])
            for one in self.shares.tenants
        ]
        self.used = [
            (one.path, [self.shares.strength * one.used.get(r, 0) for r in COUNTED]) for one in self.shares.tenants
        ]
        self.left = list(enumerate(given_snapshot.queue))
        self.waiting = {one.tenant_path for one in given_snapshot.queue}
        self.first = {}
        for place, one in self.left:
            names = one.tenant_path.split("/")
            for depth in range(1, len(names) + 1):
                self.first.setdefault("/".join(names[:depth]), place)
            self.first.setdefault(one.tenant_path + OWN, place)

    def weight(self, path):
        return 1.0 if path.endswith(OWN) else self.weights.get(path, 1.0)

    def part(self, path, rows):
        """The largest part of one resource, by weight."""
        inside = path.removesuffix(OWN)
        below = [amounts for own, amounts in rows if own == inside or (path == inside and own.startswith(f"{inside}/"))]
        whole = self.capacities.at(inside)
        parts = [sum(one[n] for one in below) / whole[n] for n in range(len(COUNTED)) if whole[n]]
        return max(parts, default=0.0) / self.weight(path)

    def share(self, path):
        return self.part(path, self.amounts) + self.moved(path)

    def moved(self, path):
        """What makes past use count only as far as the cap allows."""
        if self.shares.credit_cap is None:
            return 0.0
        above = path.removesuffix(OWN) if path.endswith(OWN) else path.rpartition("/")[0]
        siblings = {child for own in self.waiting for child in self.child(above, own)}
        siblings |= {child for own, _ in self.used for child in self.child(above, own) if self.part(child, self.used)}
        whole = sum(map(self.weight, siblings))
        mean = sum(self.part(one, self.used) * self.weight(one) for one in siblings) / whole
        past, most = self.part(path, self.used), self.shares.credit_cap / whole
        return min(max(past, mean - most), mean + most) - past

    @staticmethod
    def child(above, own):
        """The child of a tenant on the way to another; empty if there is none."""
        if own == above:
            return [own + OWN]
        if above and not own.startswith(f"{above}/"):
            return []
        return ["/".join(own.split("/")[: above.count("/") + (2 if above else 1)])]

    def next(self):
        """The path of the tenant whose turn it is, and its next job."""
        at, paths = "", [one.tenant_path for _, one in self.left]
        while not at.endswith(OWN):
            inside = [path for path in paths if not at or path == at or path.startswith(f"{at}/")]
            children = {
                at + OWN if path == at else "/".join(path.split("/")[: at.count("/") + (2 if at else 1)])
                for path in inside
            }
            # sums in another order differ in their last digits
            at = min(children, key=lambda path: (round(self.share(path), 9), self.first[path]))
        tenant_path = at.removesuffix(OWN)
        place, found = next(one for one in self.left if one[1].tenant_path == tenant_path)
        self.left.remove((place, found))
        return found

    def charge(self, path, amounts):
        self.amounts.append((path, [amounts.get(name, 0) for name in COUNTED]))


@pytest.mark.law
@given(ordered(), fair_shares)
@examples(60)
def test_each_turn_is_that_of_the_least_share_at_every_level(given_snapshot, shares):
    given_snapshot = replace(given_snapshot, fair_share=shares)
    cycle, plain = Cycle(given_snapshot, FleetIndex()), Plain(given_snapshot)
    for one in cycle.turns:
        assert plain.next() is one
        outcome = cycle.settle(one)
        if isinstance(outcome, Placement):
            plain.charge(one.tenant_path, outcome.amounts)
    assert not plain.left


@pytest.mark.law
@given(ordered(), fair_shares)
@examples(40)
def test_no_place_stays_empty_that_a_waiting_job_could_take(given_snapshot, shares):
    given_snapshot = replace(given_snapshot, fair_share=shares, patience_seconds=10**9)
    cycle = Cycle(given_snapshot, FleetIndex())
    outcomes = [(one, cycle.settle(one)) for one in cycle.turns]
    assert sorted(one.id for one, _ in outcomes) == sorted(one.id for one in given_snapshot.queue)
    for one, outcome in outcomes:
        assert isinstance(outcome, Placement) or cycle.place_for(one) is None


SIZES = st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=5)


@pytest.mark.law
@given(SIZES, st.integers(8, 64))
@examples(30)
def test_who_wants_all_gets_a_part_by_weight_and_the_parts_sum_to_the_whole(weights, gpus):
    paths = [f"t{number}" for number in range(len(weights))]
    queue = [one for path in paths for one in wanted(path, gpus)]
    shares = fair(*(tenant(path, weight) for path, weight in zip(paths, weights, strict=True)))
    got = placed(replace(snapshot(fleet(gpus), queue), fair_share=shares))
    assert sum(got.values()) == gpus
    for path, weight in zip(paths, weights, strict=True):
        due = gpus * weight / sum(weights)
        # the last jobs cannot be split; a heavier tenant may be ahead by as many as its weight
        assert abs(got[path] - due) <= max(1.0, weight / min(weights)) + 1


@pytest.mark.law
@given(SIZES, st.integers(8, 40), st.sampled_from([1.5, 2.0, 5.0]), st.integers(0, 10), st.integers(0, 10))
@examples(30)
def test_more_weight_never_gets_less(weights, gpus, factor, held, used):
    paths = [f"t{number}" for number in range(len(weights))]
    queue = [one for path in paths for one in wanted(path, gpus)]
    rows = [tenant(path, weight, held, used) for path, weight in zip(paths, weights, strict=True)]
    before, after = (
        placed(replace(snapshot(fleet(gpus), queue), fair_share=fair(first, *rows[1:])))[paths[0]]
        for first in (rows[0], replace(rows[0], weight=weights[0] * factor))
    )
    assert after >= before


@pytest.mark.law
@given(st.integers(1, 4), st.integers(2, 8), st.sampled_from([1, 2, 4, 8]))
@examples(30)
def test_to_split_a_job_or_to_submit_it_again_gains_nothing(others, times, size):
    """Of one that asks for GPUs in jobs of one GPU, or in more jobs than it needs: at most one job's more than due."""
    gpus = 8 * (others + 1)
    queue = [one for n in range(others) for one in wanted(f"t{n}", gpus)]
    whole = placed(replace(snapshot(fleet(gpus), wanted("me", 8, size) + queue), fair_share=fair()))["me"]
    split = placed(replace(snapshot(fleet(gpus), wanted("me", 8 * size * times) + queue), fair_share=fair()))["me"]
    assert split <= gpus // (others + 1) <= whole + size
    assert whole <= gpus // (others + 1) + size


@pytest.mark.law
@given(ordered(), fair_shares)
@examples(30)
def test_other_names_of_shapes_kinds_and_tenants_change_no_order(given_snapshot, shares):
    """A renamed tenant keeps its share, and so keeps its turn."""

    def renamed(path):
        return path.replace("acme", "acme2").replace("ml", "zz")

    def order(queue, given_fair):
        given_totals = [(one, totals_of(one)) for one in given_snapshot.clusters]
        clusters = [(replace(one, owner_path=""), totals) for one, totals in given_totals]
        return [one.id for one in Turns(queue, given_fair, clusters)]

    queue = given_snapshot.queue
    others = tuple(replace(one, shape="x", kind="y", tenant_path=renamed(one.tenant_path)) for one in queue)
    rows = tuple(replace(one, path=renamed(one.path)) for one in shares.tenants)
    assert order(queue, shares) == order(others, replace(shares, tenants=rows))


def test_one_job_behind_a_hundred_thousand_of_another_tenant_starts_in_the_same_cycle():
    many = wanted("acme/greedy", 1, priority=1000) * 100_000
    one = wanted("acme/modest", 1, priority=-100)
    whole = replace(snapshot(fleet(8), many + one), fair_share=fair())
    assert decide(whole).placements[1].job_id == one[0].id


def test_past_use_and_holds_put_a_tenant_behind_and_strength_zero_forgets():
    queue = wanted("a", 8) + wanted("b", 8)
    used = fair(tenant("a", used=4))
    assert placed(replace(snapshot(fleet(8), queue), fair_share=used)) == {"a": 2, "b": 6}
    assert placed(replace(snapshot(fleet(8), queue), fair_share=replace(used, strength=0.0))) == {"a": 4, "b": 4}
    held = fair(tenant("a", gpus=8), strength=0.0)
    assert placed(replace(snapshot(fleet(8), queue), fair_share=held)) == {"b": 8}
    assert placed(replace(snapshot(fleet(8), wanted("a", 8)), fair_share=held)) == {"a": 8}


def test_shares_are_divided_level_by_level_and_own_jobs_are_a_child():
    queue = [one for path in ("a/x", "a/y", "a", "b") for one in wanted(path, 12)]
    assert placed(replace(snapshot(fleet(12), queue), fair_share=fair())) == {"a": 2, "a/x": 2, "a/y": 2, "b": 6}
    heavy = fair(tenant("a", 2.0), tenant("a/x", 2.0))
    assert placed(replace(snapshot(fleet(12), queue), fair_share=heavy)) == {"a": 2, "a/x": 4, "a/y": 2, "b": 4}


def test_the_scarcest_resource_decides():
    """Who needs many cores per GPU is served by its part of the cores (dominant resource fairness)."""
    made = cluster(1, [node("n0", flavor(), 9, cpu=18_000, memory=10**9)], [flavor()], owner_path="")
    queue = [job(pods(1, 1, cpu=4000), tenant="cores") for _ in range(9)]
    queue += [job(pods(1, 3, cpu=1000), tenant="gpus") for _ in range(9)]
    # the example of Ghodsi et al.: three of the one, two of the other
    assert placed(replace(snapshot([made], queue), fair_share=fair())) == {"cores": 3, "gpus": 6}


def test_a_share_is_of_what_the_tenant_could_use_at_all():
    clusters = [uniform(1, 1, owner_path=""), uniform(2, 3, owner_path="a")]
    capacities = Capacities([(one, totals_of(one)) for one in clusters])
    assert [capacities.at(path)[0] for path in ("a", "a/x", "b")] == [32_000, 32_000, 8000]
    shares = fair(tenant("a", gpus=12), tenant("b", gpus=4))
    queue = wanted("a", 1, clusters=("c1",)) + wanted("b", 1)
    found = decide(replace(snapshot(clusters, reversed(queue)), fair_share=shares)).placements
    assert [one.job_id for one in found] == [queue[0].id, queue[1].id]


def test_slices_and_models_count_as_parts_of_gpus():
    mig, cores = flavor(A100, sharing="mig:1g.10gb"), flavor("", price=None)
    made = cluster(1, [node("n0", [mig, flavor(H100)], [7, 2]), node("n1", cores, 0)], [mig, flavor(H100), cores])
    assert totals_of(made) == (3000, 256_000, 2 * 1_048_576)


def test_priority_orders_only_the_jobs_of_one_tenant():
    low, high = wanted("a", 1, priority=-100), wanted("a", 1, priority=100)
    queue = [*high, *wanted("b", 1, priority=50), *low]
    shares = fair(tenant("a", gpus=1))
    found = [one.job_id for one in decide(replace(snapshot(fleet(8), queue), fair_share=shares)).placements]
    assert found == [queue[1].id, queue[0].id, queue[2].id]


def test_a_resource_that_the_fleet_lacks_counts_nothing():
    cores = flavor("", price=None)
    made = cluster(1, [node("n0", cores, 0, cpu=4000)], [cores], owner_path="")
    shares = fair(tenant("a", gpus=100), TenantShare("b", 1.0, {"cpu": 1000}))
    queue = [job(pods(1, 0), tenant="b"), job(pods(1, 0), tenant="a")]
    found = decide(replace(snapshot([made], queue), fair_share=shares)).placements
    assert [one.job_id for one in found] == [queue[1].id, queue[0].id]
    assert decide(replace(snapshot([], queue), fair_share=shares)).placements == ()


def test_a_wait_says_whose_turn_came_first_with_the_shares_of_both():
    queue = wanted("acme/a/x", 3) + wanted("acme/b", 6)
    shares = fair(tenant("acme/a", 2.0, gpus=0, used=4.0), tenant("acme/b", gpus=1))
    whole = replace(snapshot(fleet(8), queue), fair_share=shares)
    found = decide(whole)
    [waiting] = {wait.message.split("; ")[0] + "; " + wait.message.split("; ")[1] for wait in found.waits}
    assert {wait.code for wait in found.waits} == {"waiting_for_share"}
    # 8 GPUs: b has used 1, a 4 at twice the weight: b takes 1 and is then level with a at 2/8
    got = placed(whole)
    assert got == {"acme/a/x": 3, "acme/b": 5}
    own, other = (1 + 5) / 8, (4 + 2) / 8 / 2
    assert waiting == (
        f"its room went to another tenant, whose share of the fleet was {other:.2%}; that of acme/b is {own:.2%}".replace(
            "%", " %"
        )
    )
    assert {wait.went_first for wait in found.waits} == {"acme/a"}


def test_another_organisation_is_not_named():
    queue = wanted("acme/a", 8) + wanted("globex", 1)
    [wait] = decide(replace(snapshot(fleet(8), queue), fair_share=fair(tenant("acme", gpus=1)))).waits
    assert wait.message.startswith(
        "its room went to another organisation, whose share of the fleet was 0.00 %; that of acme"
    )
    assert wait.went_first == ""


def test_a_wait_for_quota_or_for_room_that_was_never_there_is_not_for_a_share():
    queue = wanted("a", 8) + wanted("b", 1, 9) + wanted("c", 1)
    whole = replace(snapshot(fleet(8), queue, [limit("c", "gpu", 0)]), fair_share=fair())
    waits = {wait.job_id: wait.code for wait in decide(whole).waits}
    assert [waits[one.id] for one in queue[8:]] == ["waiting_for_capacity", "waiting_for_quota"]
    alone = replace(snapshot(fleet(8), wanted("a", 9)), fair_share=fair())
    assert [wait.code for wait in decide(alone).waits] == ["behind_in_queue"]


def test_each_of_a_tenants_unlike_jobs_has_its_own_reason():
    queue = [*wanted("a", 8), job(pods(1, 9), tenant="b"), job(pods(1, 1), tenant="b")]
    whole = replace(snapshot(fleet(8), queue), fair_share=fair(tenant("b", gpus=8)))
    waits = {wait.job_id: wait.code for wait in decide(whole).waits}
    assert [waits[one.id] for one in queue[8:]] == ["waiting_for_capacity", "waiting_for_share"]


def test_a_policy_keeps_a_job_waiting_whoever_takes_the_room():
    queue = wanted("a", 8) + wanted("b", 1)
    policy = TenantPolicy("b", clusters=("elsewhere",))
    whole = replace(snapshot(fleet(8), queue, policies=[policy]), fair_share=fair())
    assert [wait.code for wait in decide(whole).waits] == ["held_by_policy"]


def test_rows_of_tenants_without_jobs_count_above_them_only():
    rows = (TenantShare("acme/gone", 3.0, {"gpu": 8000}), TenantShare("nobody", 1.0, {"gpu": 8000}))
    queue = wanted("acme/ml", 2) + wanted("globex", 2)
    found = decide(replace(snapshot(fleet(8), queue), fair_share=FairShare(rows))).placements
    assert [one.job_id for one in found] == [queue[n].id for n in (2, 3, 0, 1)]


def test_every_tenant_of_the_tests_is_on_its_own_path():
    turns = Turns([job(tenant=path) for path in TENANTS], fair(), [])
    assert [one.tenant_path for one in turns] == TENANTS
    assert list(Turns([], fair(), [])) == [] == list(Turns([], None, []))


def share_of(fair_share, clusters, path):
    return share_lines(fair_share, clusters, {path: 1}, [path])[path]


def past(gpus, owner_path=""):
    return PastCapacity(owner_path, (gpus * 1000.0, 0.0, 0.0))


def test_past_use_is_a_part_of_what_the_fleet_had_then():
    """Both used the whole fleet for as long; only one of the two fleets has doubled since."""
    rows = (tenant("acme/a", used=8),)
    grown = share_of(FairShare(rows, past=(past(8),)), fleet(16), "acme/a")
    same = share_of(FairShare(rows, past=(past(8),)), fleet(8), "acme/a")
    assert grown.used == same.used == 1.0
    assert share_of(FairShare(rows), fleet(16), "acme/a").used == 0.5, "without a history, of today's"
    shrunk = share_of(FairShare((tenant("acme/a", used=16),), past=(past(16),)), fleet(8), "acme/a")
    assert shrunk.used == 1.0, "never more than all"


def test_a_small_fleet_of_the_past_does_not_turn_the_order_round():
    """a used three quarters of a fleet of four, b a quarter of one of sixteen, which it is now: a goes second."""
    queue = [*wanted("acme/a", 1), *wanted("acme/b", 1)]
    rows = (tenant("acme/a", used=3), tenant("acme/b", gpus=4))

    def first(*history):
        turns = Turns(queue, FairShare(rows, past=history), [(one, totals_of(one)) for one in fleet(16)])
        return next(iter(turns)).tenant_path

    assert (first(past(4)), first()) == ("acme/b", "acme/a")


@given(st.lists(st.floats(0, 64), min_size=1, max_size=6), st.floats(0.5, 500), st.integers(1, 64))
def test_all_past_use_together_is_at_most_the_past_fleet(parts, before, now):
    """Whatever the fleet is now, parts of the past add up to what was used of it."""
    whole = sum(parts) or 1.0
    rows = [tenant(f"t{number}", used=before * part / whole) for number, part in enumerate(parts)]
    found = share_lines(FairShare(tuple(rows), past=(past(before),)), fleet(now), {}, [row.path for row in rows])
    assert sum(one.used for one in found.values()) <= 1 + 1e-6


def test_what_has_left_counts_for_those_who_could_use_it():
    rows = (tenant("acme/a", used=4), tenant("globex/b", used=4))
    shares = FairShare(rows, past=(past(8), past(8, "acme")))
    assert share_of(shares, fleet(8), "acme/a").used == 0.25
    assert share_of(shares, fleet(8), "globex/b").used == 0.5
