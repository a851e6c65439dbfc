"""Strangers take the room of a part of a gang, and the judges of gangs in part object to what they should."""

from types import SimpleNamespace

import pytest

from .test_judges_of_ends import ATTEMPT, JOB, SECOND
from .test_judges_of_ends import world as world_of

MINUTE = 60 * SECOND


def world(waits, rows=(), *, of_cluster=None, healed_us=SECOND, now_us=3600 * SECOND):
    """A world in which pods of one attempt waited from and until these times."""
    from devtools.simulation.mishaps.taken_room import Wait  # noqa: PLC0415 - it needs Django

    known = {f"pod-{number}": Wait(ATTEMPT, "job", *span) for number, span in enumerate(waits)}
    given = {"was_restored": False, "taken_away": set(), "runs": [], "name": "east"} | (of_cluster or {})
    one = world_of(SimpleNamespace(**given), dict(rows))
    one.waits = {"east": SimpleNamespace(known=known)}
    one.links = {"east": SimpleNamespace(is_destroyed=False)}
    one.healed_us, one.scheduler = healed_us, SimpleNamespace(now_us=now_us)
    return one


@pytest.mark.parametrize(
    ("wait", "more", "is_right"),
    [
        ((SECOND, None), {}, False),
        ((SECOND, 1400 * SECOND), {}, False),
        ((SECOND, 1300 * SECOND), {}, True),
        ((SECOND, 1400 * SECOND), {"healed_us": 200 * SECOND}, True),
        ((SECOND, None), {"healed_us": 0}, True),
        ((SECOND, None), {"of_cluster": {"was_restored": True}}, True),
        ((SECOND, None), {"of_cluster": {"taken_away": {ATTEMPT}}}, True),
        ((SECOND, None), {"fewer": [(ATTEMPT,)]}, True),
    ],
)
def test_a_part_waits_no_longer_than_the_gateway_may_take(wait, more, is_right):
    from devtools.simulation.mishaps import taken_room as judges  # noqa: PLC0415

    rows = {judges.GOES_ON_WITH_FEWER: more.pop("fewer", [])}
    found = judges.promise_3_a_part_of_a_gang_does_not_wait_for_ever(world([wait], rows, **more))
    assert (found == []) == is_right


@pytest.mark.parametrize(
    ("waits", "reason", "is_right"),
    [
        ([(SECOND, None)], "started_in_part", True),
        ([(SECOND, 17 * MINUTE)], "started_in_part", True),
        ([(SECOND, 15 * MINUTE)], "started_in_part", False),
        ([(3 * MINUTE, None)], "started_in_part", False),
        ([(3 * MINUTE, None)], "blocked_in_part", False),
        ([], "started_in_part", False),
        ([], "did_not_start", True),
    ],
)
def test_what_may_become_whole_is_not_recalled(waits, reason, is_right):
    from devtools.simulation.judges import ends as judges_of_ends  # noqa: PLC0415
    from devtools.simulation.mishaps import taken_room as judges  # noqa: PLC0415

    ended = [(ATTEMPT, "preempted", reason, reason, 16 * MINUTE, SECOND, 1, JOB, 1)]
    found = judges.promise_8_what_may_become_whole_is_not_recalled(world(waits, {judges_of_ends.ENDED: ended}))
    assert (found == []) == is_right
