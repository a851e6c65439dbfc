"""What a run reports of itself: nothing hostile is read, everything is bounded, and an end is expected only where it is sane."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.intake.reading import Refused
from federation.engine.objects.report_tokens import is_report_token, report_token
from federation.engine.reports import (
    MOST_POINTS,
    MOST_SERIES,
    MOST_VALUE,
    Pace,
    Report,
    expected_end,
    merged,
    percent_of,
    polyline,
    read_report,
    stored_report,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FULL = {
    "sequence": 7,
    "step": 120,
    "total_steps": 1000,
    "loss": 1.5,
    "series": {"lr": 0.01, "eval/acc": 1},
    "checkpoint": {
        "reference": "s3://bucket/run/120",
        "size_bytes": 10,
        "step": 100,
        "flavors": ["h100"],
        "written_at": "2026-01-31T12:00:00Z",
    },
}


def faults(body):
    with pytest.raises(Refused) as refused:
        read_report(body)
    return {(fault.field, fault.code) for fault in refused.value.faults}


def test_a_report_is_read_with_all_its_parts():
    report = read_report(FULL)
    assert (report.sequence, report.step, report.total_steps, report.loss) == (7, 120, 1000, 1.5)
    assert report.series == (("lr", 0.01), ("eval/acc", 1.0))
    assert (report.checkpoint.reference, report.checkpoint.step, report.checkpoint.flavors) == (
        "s3://bucket/run/120",
        100,
        ("h100",),
    )
    assert report.checkpoint.written_at == NOON
    assert read_report({"sequence": 0}) == Report(0)


def test_the_largest_number_of_either_sign_is_read_and_none_beyond():
    ends = {"low": -MOST_VALUE, "high": MOST_VALUE}
    assert read_report({"sequence": 0, "series": ends}).series == (("low", -1e300), ("high", 1e300))
    beyond = {name: value * 1.0000001 for name, value in ends.items()}
    assert faults({"sequence": 0, "series": beyond}) == {
        ("series.low", "out_of_range"),
        ("series.high", "out_of_range"),
    }


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sequence": None}, ("sequence", "required")),
        ({"sequence": -1}, ("sequence", "out_of_range")),
        ({"sequence": 2**53}, ("sequence", "out_of_range")),
        ({"sequence": True}, ("sequence", "wrong_type")),
        ({"sequence": "7"}, ("sequence", "wrong_type")),
        ({"step": 10**60}, ("step", "out_of_range")),
        ({"step": 1001}, ("step", "out_of_range")),
        ({"step": 1.0}, ("step", "wrong_type")),
        ({"total_steps": 0}, ("total_steps", "out_of_range")),
        ({"loss": float("nan")}, ("loss", "out_of_range")),
        ({"loss": float("-inf")}, ("loss", "out_of_range")),
        ({"loss": 10**400}, ("loss", "out_of_range")),
        ({"loss": "1"}, ("loss", "wrong_type")),
        ({"loss": False}, ("loss", "wrong_type")),
        ({"series": {"a\x00": 1}}, ("series.'a\\x00'", "bad_format")),
        ({"series": {"a\u202e": 1}}, ("series.'a\\u202e'", "bad_format")),
        ({"series": {"<script>": 1}}, ("series.'<script>'", "bad_format")),
        ({"series": {"x" * 65: 1}}, (f"series.{'x' * 65}", "bad_format")),
        ({"series": {"loss": 1}}, ("series.loss", "bad_format")),
        ({"series": {"lr": None}}, ("series.lr", "required")),
        ({"series": {"lr": float("nan")}}, ("series.lr", "out_of_range")),
        ({"series": {str(n): n for n in range(17)}}, ("series", "too_many")),
        ({"series": []}, ("series", "wrong_type")),
        ({"state": "succeeded"}, ("state", "unknown_field")),
        ({"checkpoint": "s3://x"}, ("checkpoint", "wrong_type")),
        ({"checkpoint": {}}, ("checkpoint.reference", "required")),
        ({"checkpoint": {"reference": ""}}, ("checkpoint.reference", "bad_format")),
        ({"checkpoint": {"reference": "s3://a b"}}, ("checkpoint.reference", "bad_format")),
        ({"checkpoint": {"reference": "s3://a\nFOO=1"}}, ("checkpoint.reference", "bad_format")),
        ({"checkpoint": {"reference": "s3://\u202e"}}, ("checkpoint.reference", "bad_format")),
        ({"checkpoint": {"reference": "x" * 1025}}, ("checkpoint.reference", "too_long")),
        ({"checkpoint": {"reference": "x", "size_bytes": -1}}, ("checkpoint.size_bytes", "out_of_range")),
        ({"checkpoint": {"reference": "x", "flavors": ["a"] * 33}}, ("checkpoint.flavors", "too_many")),
        ({"checkpoint": {"reference": "x", "flavors": ["a b"]}}, ("checkpoint.flavors[0]", "bad_format")),
        ({"checkpoint": {"reference": "x", "written_at": "noon"}}, ("checkpoint.written_at", "bad_format")),
    ],
)
def test_a_hostile_report_is_refused_with_the_field(change, fault):
    assert faults({**FULL, **change}) == {fault}


@pytest.mark.parametrize("body", [None, [], 7, "x"])
def test_a_report_is_an_object(body):
    assert faults(body) == {("", "wrong_type")}


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=1000))
def test_a_series_stays_short_and_keeps_its_newest_point(values):
    known = {}
    for number, value in enumerate(values):
        known = merged(known, Report(number, loss=value))
        assert len(known["loss"]) <= MOST_POINTS
        assert known["loss"][-1] == [float(number), value]
    assert known["loss"][0] == [0.0, values[0]]
    line = polyline(known["loss"], 120, 28).split()
    assert len(line) == len(known["loss"])
    assert all(0 <= float(y) <= 28 for _, y in (point.split(",") for point in line))


def test_an_attempt_has_a_bounded_number_of_series():
    known = merged({}, Report(0, series=tuple((f"s{n}", 1.0) for n in range(MOST_SERIES - 1)), loss=1.0))
    assert len(known) == MOST_SERIES
    assert merged(known, Report(1, series=(("s0", 2.0),)))["s0"] == [[0.0, 1.0], [1.0, 2.0]]
    assert merged(known, Report(1, series=(("one more", 2.0),))) is None


def pace(**changes):
    told = {"step": 50, "total_steps": 100, "first_step": 10, "first_step_at": NOON, "reported_at": minutes(40)}
    return Pace(**{**told, **changes})


def minutes(count):
    return NOON + timedelta(minutes=count)


def test_an_end_is_expected_at_the_mean_pace():
    assert expected_end(pace(), minutes(1000), minutes(41)) == minutes(90)
    assert expected_end(pace(), minutes(90), minutes(41)) == minutes(90)
    assert expected_end(pace(step=100), minutes(1000), minutes(41)) == minutes(41)
    assert (percent_of(50, 101), percent_of(None, 100), percent_of(5, None)) == (49, None, None)


@pytest.mark.parametrize(
    ("changes", "latest", "now"),
    [
        ({"step": None}, 1000, 41),
        ({"total_steps": None}, 1000, 41),
        ({"first_step": None, "first_step_at": None}, 1000, 41),
        ({"step": 10}, 1000, 41),
        ({"reported_at": NOON + timedelta(seconds=59)}, 1000, 41),
        ({"total_steps": 2**53 - 1}, 1000, 41),
        ({}, 89, 41),
        ({}, 1000, 71),
    ],
)
def test_no_end_is_expected_where_it_would_be_a_guess(changes, latest, now):
    assert expected_end(pace(**changes), minutes(latest), minutes(now)) is None


def test_a_token_is_worth_something_for_its_attempt_and_key_only():
    key, attempt = b"k" * 32, UUID(int=1)
    token = report_token(key, attempt)
    assert is_report_token(token, [b"n" * 32, key], attempt)
    assert not is_report_token(token, [b"n" * 32], attempt)
    assert not is_report_token(token, [key], UUID(int=2))
    for wrong in ("", "swyr_", token[:-1], token + "A", token + "\n", token.replace("swyr_", "swy_"), "é" * 48):
        assert not is_report_token(wrong, [key], attempt)


def test_a_long_series_keeps_every_second_point_and_the_newest():
    known = {"loss": [[float(x), 0.0] for x in range(MOST_POINTS)]}
    found = merged(known, Report(MOST_POINTS, loss=1.0))["loss"]
    assert [x for x, _ in found] == [*range(0, MOST_POINTS, 2), MOST_POINTS]
    assert found[-1] == [MOST_POINTS, 1.0]
    known["loss"].append([float(MOST_POINTS), 0.0])
    found = merged(known, Report(MOST_POINTS + 1, loss=1.0))["loss"]
    assert [x for x, _ in found] == [*range(0, MOST_POINTS + 1, 2), MOST_POINTS + 1]
    # The sequence stands in where a report has no step.
    assert merged({}, Report(3, step=7, loss=1.0)) == {"loss": [[7.0, 1.0]]}


def test_only_what_a_report_mentions_is_stored():
    assert stored_report(Report(1)) == {}
    assert stored_report(Report(1, step=0, total_steps=9, loss=0.0)) == {"step": 0, "total_steps": 9, "loss": 0.0}
    assert stored_report(Report(1, step=5)) == {"step": 5}
