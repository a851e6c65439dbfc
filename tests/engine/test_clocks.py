"""A cluster's instants on our clock, whatever its own shows."""

from datetime import UTC, datetime, timedelta

import pytest

from clusters.engine.clocks import Era, eras_of, measured, on_our_clock

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


def shown(at: datetime, skew_ms: int) -> datetime:
    """What a clock that is so far ahead shows."""
    return at + timedelta(milliseconds=skew_ms)


@pytest.mark.parametrize("skew_ms", [2001, -2001, 300_000, -300_000, 2 * HOUR_MS, -2 * HOUR_MS])
def test_an_instant_is_corrected_by_what_was_measured(skew_ms):
    eras = measured((), skew_ms, NOON - 9 * HOUR)
    assert on_our_clock(eras, shown(NOON - HOUR, skew_ms), NOON) == (NOON - HOUR, True)


@pytest.mark.parametrize("skew_ms", [0, 1000, -1000, 2000, -2000])
def test_clocks_that_nearly_agree_are_believed(skew_ms):
    eras = measured((), skew_ms, NOON - 9 * HOUR)
    assert on_our_clock(eras, shown(NOON, skew_ms), NOON) == (shown(NOON, skew_ms), False)


def test_a_cluster_that_was_never_measured_is_believed():
    assert on_our_clock((), NOON - HOUR, NOON) == (NOON - HOUR, False)


def test_a_measurement_that_agrees_with_the_last_begins_no_era():
    eras = measured(measured((), 0, NOON - 9 * HOUR), 300_000, NOON - 3 * HOUR)
    assert len(eras) == 2
    assert measured(eras, 300_000, NOON) == eras


@pytest.mark.parametrize("before", [0, 300_000, -300_000, 2 * HOUR_MS, -2 * HOUR_MS])
@pytest.mark.parametrize("after", [0, 300_000, -300_000, 2 * HOUR_MS, -2 * HOUR_MS])
def test_an_instant_is_of_the_era_in_which_the_clock_showed_it(before, after):
    set_at = NOON - 3 * HOUR
    eras = measured(measured((), before, NOON - 9 * HOUR), after, set_at)
    early, late = set_at - 2.5 * HOUR, set_at + 2.5 * HOUR
    assert on_our_clock(eras, shown(late, after), NOON)[0] == late
    # a clock that is set back shows some instants twice: then the later one counts, since what is told is news
    again = shown(early, before - after)
    assert on_our_clock(eras, shown(early, before), NOON)[0] == (again if set_at <= again <= NOON else early)


def test_measurements_of_one_era_are_one_and_the_largest_counts():
    eras: tuple[Era, ...] = ()
    for skew_ms in (59_200, 59_900, 59_400, 59_700):
        eras = measured(eras, skew_ms, NOON)
    assert eras == (Era(NOON, 59_900),)
    eras = measured(eras, 20, NOON + HOUR)
    assert eras == (Era(NOON, 59_900), Era(NOON + HOUR, 20))
    assert eras_of([era.as_json() for era in eras]) == eras


@pytest.mark.parametrize(("more", "eras"), [(1500, 1), (-1500, 1), (1501, 2), (-1501, 2)])
def test_measurements_within_a_second_and_a_half_are_of_one_era(more, eras):
    assert len(measured((Era(NOON, 60_000),), 60_000 + more, NOON + HOUR)) == eras


@pytest.mark.parametrize(("seconds", "corrected"), [(59, 300), (60, 300), (61, 0)])
def test_a_clock_was_set_up_to_a_minute_before_that_was_measured(seconds, corrected):
    """What it showed earlier it showed before it was set back."""
    eras = (Era(NOON - 9 * HOUR, 0), Era(NOON, -300_000))
    told = shown(NOON - timedelta(seconds=seconds), -300_000)
    assert on_our_clock(eras, told, NOON + HOUR)[0] - told == timedelta(seconds=corrected)


@pytest.mark.parametrize(("seconds", "corrected"), [(59, 300), (60, 300), (61, 0)])
def test_an_instant_up_to_a_minute_ahead_of_now_is_still_of_the_latest_era(seconds, corrected):
    """Later ones were shown before, if a clock that was right then could have."""
    eras = (Era(NOON - 9 * HOUR, 0), Era(NOON - HOUR, -300_000))
    now = NOON - HOUR
    told = shown(now + timedelta(seconds=seconds), -300_000)
    assert on_our_clock(eras, told, now)[0] - told == timedelta(seconds=corrected)


def test_a_clock_that_is_set_for_ever_takes_no_more_room():
    eras: tuple[Era, ...] = ()
    for number in range(100):
        eras = measured(eras, number * 10_000, NOON)
    assert [era.skew_ms for era in eras] == [number * 10_000 for number in range(92, 100)]


@pytest.mark.parametrize("told", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("skew_ms", [10**15, -(10**15)])
def test_no_instant_breaks_it(told, skew_ms):
    assert isinstance(on_our_clock(measured((), skew_ms, NOON), told, NOON)[0], datetime)
