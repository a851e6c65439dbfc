"""Which jobs that use borrowed quota are stopped for a job of the tenant that it belongs to."""

import random
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.cycle.cycle import decide
from placement.preemption.plan import claim_text, is_preemptible
from placement.values.limits import LimitState
from placement.values.preemption import Allowance, Leaving, RoomClaim

from .fleets import NOW, job, limit, pods
from .preemption_worlds import after, fits_after, full, planned, run_on, world

GPU = 1000


def lent(runs, *, owner=8, borrower=8, whole=16, reclaims=True, owner_path="acme/a", borrower_path="acme/b"):
    """Two departments of an organisation that borrow from each other, with what these runs hold."""

    def held(path):
        return sum(one.amounts["gpu"] for one in runs if f"{one.tenant_path}/".startswith(f"{path}/"))

    return [
        limit("acme", "gpu", whole * GPU, held("acme"), nominal=whole * GPU, number=901),
        limit(owner_path, "gpu", whole * GPU, held(owner_path), nominal=owner * GPU, reclaims=reclaims, number=902),
        limit(borrower_path, "gpu", whole * GPU, held(borrower_path), nominal=borrower * GPU, number=903),
    ]


def borrowing(*runs, waiting=None, limits=None, nodes="aa", **more):
    waiting = waiting or job(pods(1, 8), tenant="acme/a")
    return world([full(nodes, runs)], runs, waiting, lent(runs) if limits is None else limits, preemptors=(), **more)


def of_b(number, node=0, gpus=8, **more):
    return run_on(number, {f"c1-n{node}": 1}, gpus=gpus, tenant=more.pop("tenant", "acme/b"), **more)


def stopped(found):
    return None if found.decision is None else {one.run.attempt_id.int for one in found.decision.victims}


def test_the_job_of_the_owner_gets_back_what_was_lent_whatever_the_priority_of_the_borrower():
    cheap, dear = of_b(1, 0, minutes=10, priority=100), of_b(2, 1, minutes=600)
    found = planned(borrowing(cheap, dear))
    assert stopped(found) == {1}
    (victim,) = found.decision.victims
    assert (victim.loan.tenant_path, victim.loan.resource) == ("acme/b", "gpu")
    assert (victim.loan.held, victim.loan.nominal) == (16 * GPU, 8 * GPU)
    assert victim.loan.weight == 1 - 8 / 32
    assert victim.cost == (600 + 60) * 8
    assert found.decision.amounts["gpu"] == 8 * GPU


def test_room_that_borrowers_take_is_given_back_though_quota_is_left():
    runs = of_b(1, 0), of_b(2, 1)
    assert stopped(planned(borrowing(*runs, limits=lent(runs, whole=32)))) in ({1}, {2})


@pytest.mark.parametrize(
    "given_world",
    [
        borrowing(of_b(1, 0), of_b(2, 1), limits=lent([of_b(1), of_b(2)], reclaims=False)),
        borrowing(of_b(1, 0), of_b(2, 1), waiting=job(pods(2, 8), tenant="acme/a")),  # it would borrow itself
        borrowing(of_b(1, 0), of_b(2, 1), limits=lent([of_b(1), of_b(2)], borrower=16)),  # nothing is borrowed
        borrowing(of_b(1, 0), of_b(2, 1), waiting=job(pods(1, 8), tenant="acme")),  # no limit of its own
        borrowing(of_b(1, 0, tenant="globex"), of_b(2, 1, tenant="globex")),
        borrowing(of_b(1, 0), of_b(2, 1), allowance=Allowance(0)),
    ],
)
def test_nothing_else_is_stopped(given_world):
    found = planned(given_world)
    assert (found.decision, found.why_not) == (None, {})


def test_the_highest_limit_below_the_shared_one_decides_whether_quota_is_reclaimed():
    runs = of_b(1, 0), of_b(2, 1)
    for department, team, expected in ((False, True, None), (True, False, {1})):
        own = limit("acme/a/x", "gpu", 8 * GPU, 0, nominal=8 * GPU, reclaims=team, number=904)
        limits = [*lent(runs, reclaims=department), own]
        assert stopped(planned(borrowing(*runs, waiting=job(pods(1, 8), tenant="acme/a/x"), limits=limits))) == expected


def test_shields_and_earlier_stops_are_respected_and_told():
    young = of_b(1, 0, shield_until=NOW + timedelta(minutes=5)), of_b(2, 1, shield_until=NOW + timedelta(minutes=9))
    (text,) = planned(borrowing(*young)).why_not.values()
    assert text == "2 running jobs that borrowed its quota cannot be stopped yet: the first is shielded until 12:05 UTC"
    tired = of_b(1, 0, times_preempted=3), of_b(2, 1, times_preempted=3)
    (text,) = planned(borrowing(*tired)).why_not.values()
    assert text == "2 running jobs that borrowed its quota cannot be stopped, after being stopped 3 times for others"


def test_a_job_is_not_stopped_for_one_that_was_stopped_for_it():
    waiting = job(pods(1, 8), tenant="acme/a")
    runs = of_b(1, 0, replaced=frozenset({waiting.id})), of_b(2, 1, minutes=9000)
    assert stopped(planned(borrowing(*runs, waiting=waiting))) == {2}


def test_a_job_that_would_fit_again_in_its_tenants_own_quota_is_not_stopped():
    small, large = of_b(1, 0, gpus=4), of_b(2, 1, gpus=8)
    limits = lent([small, large], whole=12)  # four of twelve are borrowed
    waiting = job(pods(1, 4), tenant="acme/a")
    assert stopped(planned(borrowing(small, large, waiting=waiting, limits=limits))) == {1}
    eight = job(pods(1, 8), tenant="acme/a")
    assert stopped(planned(borrowing(small, large, waiting=eight, limits=limits))) == {2}
    assert (
        planned(borrowing(small, large, waiting=eight, limits=lent([small, large], whole=12, borrower=12))).decision
        is None
    )


def test_who_is_being_stopped_already_is_not_counted_as_a_borrower_again():
    runs = [of_b(n + 1, n // 2, gpus=4) for n in range(4)]
    leaving = Leaving("acme/b", "c1", {"gpu": 8 * GPU})
    limits = lent([*runs, of_b(9)], whole=24)
    assert planned(borrowing(*runs, limits=limits)).decision is not None
    assert planned(borrowing(*runs, limits=limits, leaving=(leaving,))).decision is not None
    both = (leaving, leaving)
    assert planned(borrowing(*runs, limits=limits, leaving=both)).decision is None


def test_a_run_past_its_estimate_is_stopped_first_and_then_who_borrows_most():
    long, late = of_b(1, 0, minutes=60), of_b(2, 1, minutes=600, estimated_seconds=600)
    assert stopped(planned(borrowing(long, late))) == {2}
    runs = of_b(1, 0, minutes=60, tenant="acme/b"), of_b(2, 1, minutes=61, tenant="acme/c")
    limits = [*lent(runs, borrower=7), limit("acme/c", "gpu", 16 * GPU, 8 * GPU, nominal=GPU, number=904)]
    assert stopped(planned(borrowing(*runs, limits=limits))) == {2}


def test_a_team_inside_what_its_department_covers_keeps_its_jobs():
    """acme/b borrows because of acme/b/x; acme/b/y is within its own amount."""
    x, y = of_b(1, 0, tenant="acme/b/x", minutes=600), of_b(2, 1, tenant="acme/b/y", minutes=1)
    teams = [
        limit("acme/b/x", "gpu", 16 * GPU, 8 * GPU, nominal=0, number=904),
        limit("acme/b/y", "gpu", 16 * GPU, 8 * GPU, nominal=8 * GPU, number=905),
    ]
    assert stopped(planned(borrowing(x, y, limits=[*lent([x, y]), *teams]))) == {1}
    uncovered = replace(teams[0], nominal=8 * GPU)
    assert stopped(planned(borrowing(x, y, limits=[*lent([x, y]), uncovered, teams[1]]))) == {2}


def test_the_quota_of_a_claim_is_kept_from_others_and_given_to_its_job():
    waiting, other = job(pods(1, 8), tenant="acme/a"), job(pods(1, 8), tenant="acme/b")
    runs = (of_b(1, 0),)
    claim = RoomClaim(
        UUID(int=7), waiting.id, UUID(int=1), "c1", ("c1-n1",), NOW + timedelta(minutes=9), 1, 1, 1, {"gpu": 8 * GPU}
    )
    given_world = replace(
        world([full("aaa", runs)], runs, waiting, lent(runs), claims=(claim,), preemptors=()), queue=(other, waiting)
    )
    decisions = decide(given_world)
    assert [one.job_id for one in decisions.placements] == [waiting.id]
    assert [one.code for one in decisions.waits] == ["waiting_for_quota"]
    assert claim_text(claim, given_world) == (
        "1 job that borrowed its quota is being stopped for it (1 of them ended); 1 node of c1 is kept for it until 12:09 UTC"
    )
    assert claim_text(replace(claim, victims=2, ended=0), given_world).startswith(
        "2 jobs, 1 of which borrowed its quota, are being stopped for it;"
    )
    late = decide(replace(given_world, claims=(), queue=(other, waiting)))
    assert [one.job_id for one in late.placements] == [other.id]


# Laws, and a second opinion


def small_world(seed, *, most_runs=7, nodes=3):
    """Departments a (the owner), b and c with teams below b, full of runs, and one job of a."""
    draw = random.Random(seed)
    left = dict.fromkeys(range(nodes), 8)
    runs = []
    for number in range(1, most_runs + 1):
        gpus, count = draw.choice([1, 2, 4, 8]), draw.choice([1, 1, 2])
        free = [n for n, units in left.items() if units >= gpus]
        chosen = draw.sample(free, min(count, len(free)))
        for n in chosen:
            left[n] -= gpus
        if chosen:
            runs.append(
                run_on(
                    number,
                    {f"c1-n{n}": 1 for n in chosen},
                    gpus=gpus,
                    tenant=draw.choice(["acme/a", "acme/b", "acme/b/x", "acme/b/y", "acme/c", "acme/b/x"]),
                    minutes=draw.randint(1, 600),
                    priority=draw.choice([0, 50]),
                    shield_until=NOW + timedelta(minutes=draw.choice([-5] * 6 + [5])),
                    times_preempted=draw.choice([0, 0, 0, 1, 3]),
                    estimated_seconds=draw.choice([None, None, 1200]),
                )
            )
    whole = 8 * nodes

    def of(path, nominal, **more):
        held = sum(one.amounts["gpu"] for one in runs if f"{one.tenant_path}/".startswith(f"{path}/"))
        return limit(path, "gpu", whole * GPU, held, nominal=nominal * GPU, **more)

    limits = [
        of("acme", whole),
        of("acme/a", draw.choice([4, 8, 16]), reclaims=True),
        of("acme/b", draw.choice([0, 2, 4, 8])),
        of("acme/b/x", draw.choice([0, 1, 4])),
        of("acme/b/y", draw.choice([0, 2, 8])),
        of("acme/c", draw.choice([0, 4])),
    ]
    waiting = job(pods(draw.randint(1, 2), draw.choice([1, 2, 4, 8])), tenant="acme/a")
    return world(
        [full("ab" * (nodes // 2) + "a" * (nodes % 2), runs, owner_path="")], runs, waiting, limits, preemptors=()
    )


def held_at(given_world, path, without=()):
    gone = {one.attempt_id for one in without}
    return sum(
        one.amounts["gpu"]
        for one in given_world.running
        if one.attempt_id not in gone and f"{one.tenant_path}/".startswith(f"{path}/")
    )


def limits_by_path(given_world) -> dict[str, LimitState]:
    return {one.tenant_path: one for one in given_world.limits}


def may_lose(given_world, chosen):
    """By the rule in plain words: no stopped job would fit again within what is its tenants' own."""
    limits = limits_by_path(given_world)
    (waiting,) = given_world.queue
    asked = sum(p.count * p.gpu.count for p in waiting.pod_sets) * GPU
    if held_at(given_world, "acme/a") + asked > limits["acme/a"].nominal:
        return not chosen
    teams_are_covered = limits["acme/b/x"].nominal + limits["acme/b/y"].nominal <= limits["acme/b"].nominal
    for one in chosen:
        top = "/".join(one.tenant_path.split("/")[:2])
        if top == "acme/a" or held_at(given_world, top) <= limits[top].nominal:
            return False
        paths = [top] + [one.tenant_path] * (teams_are_covered and one.tenant_path != top)
        if any(held_at(given_world, p, chosen) + one.amounts["gpu"] <= limits[p].nominal for p in paths):
            return False
    return True


def counted(given_world, one):
    top = "/".join(one.tenant_path.split("/")[:2])
    held, nominal = held_at(given_world, top), limits_by_path(given_world)[top].nominal
    if one.estimated_seconds and (NOW - one.started_at).total_seconds() > one.estimated_seconds:
        return one.cost(NOW) * 1e-6
    return one.cost(NOW) * (1 - (held - nominal) / (2 * held))


@pytest.mark.law
@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 10]))
def test_laws_of_a_reclaim(seed, exact):
    given_world = small_world(seed, most_runs=10, nodes=4)
    found = planned(given_world, exact).decision
    if found is None:
        return
    victims = [one.run for one in found.victims]
    assert fits_after(given_world, victims)
    assert may_lose(given_world, victims)
    for one in victims:
        assert one.shield_until <= NOW
        assert one.times_preempted < 3
        assert not fits_after(given_world, [other for other in victims if other is not one])
    (placed,) = decide(after(given_world, victims)).placements
    assert (placed.cluster_id, dict(placed.amounts)) == (found.cluster_id, dict(found.amounts))


@pytest.mark.oracle
def test_on_small_fleets_what_is_reclaimed_costs_what_the_cheapest_of_all_lawful_choices_does():
    decided = 0
    for seed in range(140):
        given_world = small_world(seed)
        may = [one for one in given_world.running if is_preemptible(one, given_world.now)]
        costs = [
            sum(counted(given_world, one) for one in chosen)
            for size in range(len(may) + 1)
            for chosen in combinations(may, size)
            if may_lose(given_world, chosen) and fits_after(given_world, chosen)
        ]
        least = min(costs, default=None)
        if least == 0:
            continue
        found, quick = planned(given_world).decision, planned(given_world, exact=0).decision
        assert (found is None) == (least is None), seed
        assert quick is None or least is not None, seed
        if least is not None:
            decided += 1
            assert sum(counted(given_world, one.run) for one in found.victims) == pytest.approx(least), seed
    assert decided >= 20


@pytest.mark.law
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_who_was_stopped_reclaims_nothing_in_turn(seed):
    """After the owner's job has started, the stopped job waits in its place; with `reclaims` everywhere."""
    given_world = small_world(seed)
    found = planned(given_world).decision
    if found is None:
        return
    (waiting,) = given_world.queue
    victims = [one.run for one in found.victims]
    mine = run_on(
        900, dict(decide(after(given_world, victims)).placements[0].pod_sets[0].nodes),
        gpus=waiting.pod_sets[0].gpu.count, tenant="acme/a",
    )  # fmt: skip
    runs = [one for one in given_world.running if one not in victims] + [replace(mine, job_id=waiting.id)]
    for victim in victims:
        held = victim.pods[0]
        again = job(pods(sum(held.nodes.values()), held.units), tenant=victim.tenant_path, id=victim.job_id)
        limits = [
            replace(
                one,
                held=sum(r.amounts["gpu"] for r in runs if f"{r.tenant_path}/".startswith(f"{one.tenant_path}/")),
                reclaims=True,
            )
            for one in given_world.limits
        ]
        then = world([full("aba", runs, owner_path="")], runs, again, limits, preemptors=())
        decision = planned(then).decision
        assert decision is None or waiting.id not in {one.run.job_id for one in decision.victims}
