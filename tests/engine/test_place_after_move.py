"""Where a running job would go if its run had ended when its turn came, and why nowhere."""

from dataclasses import replace
from uuid import UUID

from placement.answers.quotes import Quoter
from placement.values.decisions import Placement, Wait
from placement.values.model import LimitState, UserLimitState

from .fleets import flavor, job, limit, pods, snapshot, uniform
from .preemption_worlds import run_on

RUN = run_on(1, {"c1-n000": 1}, gpus=8, tenant="acme/ml")
MOVED = job(pods(1, 8), tenant="acme/ml", exclude_clusters=("c1",))
FULL = uniform(1, 1, free=0)


def moved(clusters, *, job_=MOVED, overdrawn=None, depth=None, queue=(), **known):
    quoter = Quoter(replace(snapshot(clusters, list(queue)), **known), depth=depth)
    return quoter.move(job_, RUN, overdrawn or {})


def test_it_goes_to_another_cluster_that_has_room():
    found = moved(
        [FULL, uniform(2, of=flavor(price="9")), uniform(3, of=flavor(price="1"))],
        job_=replace(MOVED, strategy="cheapest"),
    )
    assert isinstance(found, Placement)
    assert (found.job_id, found.cluster) == (MOVED.id, "c3")


def test_where_nothing_has_room_the_reason_of_a_waiting_job_is_given():
    found = moved([FULL, uniform(2, 1, free=0)])
    assert isinstance(found, Wait)
    assert (found.job_id, found.code) == (MOVED.id, "waiting_for_capacity")
    assert moved([FULL]).per_cluster[0].code == "cluster_excluded"


def test_what_its_own_run_holds_of_the_quota_is_free_for_it():
    limits = (limit("acme", "gpu", 8000, 8000, nominal=8000, number=901),)
    assert isinstance(moved([FULL, uniform(2)], limits=limits), Placement)
    [tight] = limits
    overdrawn = moved([FULL, uniform(2)], limits=limits, overdrawn={tight.id: 1})
    assert isinstance(overdrawn, Wait)


def test_what_its_own_run_holds_of_the_limit_of_its_class_is_free_for_it_unless_the_limit_was_cut():
    job_, world = replace(MOVED, class_name="urgent"), [FULL, uniform(2)]
    for most, run, fits in ((8000, "urgent", True), (7999, "urgent", False), (8000, "low", False), (15999, "", False)):
        of_class = LimitState(UUID(int=902), "", "gpu", (), most, 8000, nominal=most, class_name="urgent")
        known = snapshot(world, [])
        outcome = Quoter(replace(known, class_limits=(of_class,))).move(job_, replace(RUN, class_name=run), {})
        assert isinstance(outcome, Placement) is fits, (most, run)
        assert isinstance(outcome, Placement) or outcome.code == "waiting_for_class_limit"


def test_what_its_own_run_holds_of_the_limit_on_its_user_is_free_for_it_unless_the_limit_was_cut():
    """A user above a limit that was cut would lose the run, and could not start it again."""
    ada, bob = UUID(int=1), UUID(int=2)
    job_, run, world = replace(MOVED, user=ada), replace(RUN, user=ada), snapshot([FULL, uniform(2)], [])
    for most, held, fits in ((8000, 8000, True), (7999, 8000, False), (9000, 16000, False), (16000, 16000, True)):
        each = UserLimitState(UUID(int=903), "acme", "gpu", most, {ada: held, bob: 99000})
        outcome = Quoter(replace(world, user_limits=(each,))).move(job_, run, {})
        assert isinstance(outcome, Placement) is fits, (most, held)
        assert isinstance(outcome, Placement) or outcome.code == "waiting_for_user_limit"


def test_more_jobs_ahead_of_it_than_a_round_considers_are_the_reason():
    ahead = [job(pods(1, 1), priority=9), job(pods(1, 1), priority=9)]
    found = moved([FULL, uniform(2)], queue=ahead, depth=2)
    assert (found.code, found.job_id) == ("behind_in_queue", MOVED.id)
    assert isinstance(moved([FULL, uniform(2)], queue=ahead, depth=3), Placement)
    behind = [job(pods(1, 1), priority=MOVED.priority - 1) for _ in ahead]
    assert isinstance(moved([FULL, uniform(2)], queue=behind, depth=2), Placement)


def test_jobs_of_the_same_priority_are_ahead_of_it_and_those_of_a_lower_one_behind():
    urgent, one_place = replace(MOVED, priority=50), [FULL, uniform(2, 1)]
    for priority, is_behind in ((100, False), (50, False), (49, True), (0, True)):
        found = moved(one_place, job_=urgent, queue=[job(pods(1, 8), priority=priority)])
        assert isinstance(found, Placement) is is_behind
