"""Windows and steps in the words of OpenCost's API."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from billing.engine.opencost import NotAWindow, steps_of, window_of

# A Wednesday, late in the evening in UTC: where it is told from, Thursday has begun.
NOW = datetime(2026, 4, 1, 23, 30, 5, 123_999, UTC)
DAY = timedelta(days=1)


def at(month, day):
    return datetime(2026, month, day, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "start", "until"),
    [
        ("today", at(4, 1), at(4, 2)),
        ("yesterday", at(3, 31), at(4, 1)),
        ("week", at(3, 29), at(4, 2)),
        ("lastweek", at(3, 22), at(3, 29)),
        ("month", at(4, 1), at(4, 2)),
        ("lastmonth", at(3, 1), at(4, 1)),
        ("1d", at(4, 1), at(4, 2)),
        ("7d", at(3, 26), at(4, 2)),
        ("2w", at(3, 19), at(4, 2)),
    ],
)
def test_words_and_days_are_whole_days_in_utc_and_weeks_begin_on_sundays(word, start, until):
    assert window_of(word, NOW) == (start, until)
    assert window_of(word, NOW.astimezone(timezone(timedelta(hours=2)))) == (start, until)


def test_a_week_that_begins_today_is_one_day_long():
    sunday = datetime(2026, 3, 29, 12, tzinfo=UTC)
    assert window_of("week", sunday) == (at(3, 29), at(3, 30))
    assert window_of("lastweek", sunday) == (at(3, 22), at(3, 29))


def test_hours_and_minutes_end_now_in_whole_milliseconds():
    now = NOW.replace(microsecond=123_000)
    assert window_of("36h", NOW) == (now - timedelta(hours=36), now)
    assert window_of("90m", NOW) == (now - timedelta(minutes=90), now)


def test_a_pair_of_times_may_have_offsets_or_be_unix_seconds():
    wanted = (at(3, 1), at(3, 2))
    assert window_of("2026-03-01T00:00:00Z,2026-03-02T02:00:00+02:00", NOW) == wanted
    assert window_of(",".join(str(int(each.timestamp())) for each in wanted), NOW) == wanted
    assert window_of("1970-01-01T00:00:00Z,9998-12-31T00:00:00Z", NOW) == (
        datetime(1970, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "0d", "7", "100000d", "1.5h", "7y", "-7d", ",", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00,2026-03-02T00:00:00Z",
     "1969-12-31T23:59:59Z,2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z,9999-01-01T00:00:00Z", "12345678,2026-03-01T00:00:00Z",
     "123456789012,2026-03-01T00:00:00Z", "99999999999999,now"],
)  # fmt: skip
def test_anything_else_is_no_window(text):
    with pytest.raises(NotAWindow):
        window_of(text, NOW)


def test_steps_cover_the_window_without_a_gap_and_the_last_one_is_cut():
    start, until = at(3, 1), at(3, 3) + timedelta(hours=1)
    assert steps_of(start, until, "", 1) == [(start, until)]
    steps = steps_of(start, until, "1d", 3)
    assert steps == [(start, start + DAY), (start + DAY, start + 2 * DAY), (start + 2 * DAY, until)]
    assert all(one[1] == following[0] for one, following in pairwise(steps))
    assert len(steps_of(start, start + DAY, "12h", 2)) == 2
    with pytest.raises(NotAWindow, match="at most 1 steps"):
        steps_of(start, start + DAY, "12h", 1)
    with pytest.raises(NotAWindow, match="a duration"):
        steps_of(start, until, "daily", 9)
