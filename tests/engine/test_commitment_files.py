"""Files of commitments: each fault has its place and its code, and what is at its limit is read."""

import json

import pytest

from billing.engine.commitment_file import (
    MOST_CHARACTERS,
    MOST_COMMITMENTS,
    MOST_UNITS,
    REQUIRED,
    NotCommitments,
    read_commitments,
)

ROW = {
    "name": "reserved", "kind": "reserved_instance", "clusters": ["north"], "start": "2026-01-01T00:00:00Z",
    "until": "2027-01-01T00:00:00Z", "currency": "USD", "flavor": "h100", "capacity_type": "reserved", "units": "8",
    "upfront": "1000",
}  # fmt: skip


def file_of(*rows):
    return json.dumps({"commitments": rows})  # which is YAML too


def fault_of(text):
    with pytest.raises(NotCommitments) as refused:
        read_commitments(text)
    return refused.value.field, refused.value.code


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("#" * (MOST_CHARACTERS + 1), "file", "too_long"),
        ("commitments: [", "file", "bad_yaml"),
        ('commitments: ["\\0"]', "file", "bad_yaml"),
        ("[" * 5_000, "file", "bad_yaml"),
        ("commitments: &a []\nmore: *a", "file", "yaml_alias"),
        ("commitments: []\ncommitments: []", "file", "given_twice"),
        ("", "commitments", "required"),
        ("[]", "commitments", "required"),
        ("commitments: {}", "commitments", "required"),
        ("commitments: []\nmore: 1", "commitments", "required"),
        (f"commitments: [{'1, ' * MOST_COMMITMENTS}1]", "commitments", "required"),
        ("commitments: [1]", "commitments[0]", "not_an_object"),
    ],
)
def test_a_file_that_is_none_is_refused(text, field, code):
    assert fault_of(text) == (field, code)


@pytest.mark.parametrize("missing", REQUIRED)
def test_each_field_without_which_there_is_no_commitment_is_required(missing):
    given = {name: value for name, value in ROW.items() if name != missing}
    assert fault_of(file_of(given)) == (f"commitments[0].{missing}", "required")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("price", "1", "unknown_field"),
        ("name", "Reserved", "out_of_range"),
        ("name", "a" * 64, "out_of_range"),
        ("name", ["a"], "out_of_range"),
        ("kind", "gift", "out_of_range"),
        ("clusters", [], "out_of_range"),
        ("clusters", "north", "out_of_range"),
        ("clusters", [["north"]], "out_of_range"),
        ("clusters", [f"c{number}" for number in range(201)], "out_of_range"),
        ("clusters", ["north", "north"], "given_twice"),
        ("start", "2026-01-01T00:30:00Z", "out_of_range"),
        ("start", "2026-02-30T00:00:00Z", "out_of_range"),
        ("start", "1969-12-31T23:00:00Z", "out_of_range"),
        ("until", "3000-01-01T00:00:00Z", "out_of_range"),
        ("until", "2026-01-01T00:00:00Z", "empty_period"),
        ("until", "2046-01-01T01:00:00Z", "empty_period"),
        ("currency", "usd", "out_of_range"),
        ("flavor", "", "out_of_range"),
        ("flavor", "f" * 121, "out_of_range"),
        ("capacity_type", "", "out_of_range"),
        ("units", "0", "out_of_range"),
        ("units", "1.5", "out_of_range"),
        ("units", str(MOST_UNITS + 1), "out_of_range"),
        ("upfront", "-1", "out_of_range"),
        ("upfront", "1.0000001", "out_of_range"),
        ("upfront", "1" * 13, "out_of_range"),
        ("upfront", "0", "required"),
        ("recurring", "1e3", "out_of_range"),
        ("withdrawn", "yes", "out_of_range"),
    ],
)
def test_a_wrong_commitment_is_refused_by_its_field(field, value, code):
    assert fault_of(file_of(ROW | {"name": "first"}, ROW | {field: value})) == (f"commitments[1].{field}", code)


def test_a_name_is_given_once_in_a_file():
    rows = [ROW | {"name": name} for name in ("a", "b", "a")]
    assert fault_of(file_of(*rows)) == ("commitments[2].name", "given_twice")
    assert [one.name for one in read_commitments(file_of(*rows[:2]))] == ["a", "b"]


@pytest.mark.parametrize(
    "most",
    [
        {"name": "a" * 63},
        {"clusters": [f"c{number:03d}" for number in range(200)]},
        {"start": "1970-01-01T00:00:00Z", "until": "1990-01-01T00:00:00Z"},
        {"start": "2979-12-31T23:00:00Z", "until": "2999-12-31T23:00:00Z"},
        {"start": "2028-02-29T00:00:00Z", "until": "2048-02-29T00:00:00Z"},
        {"flavor": "f" * 120, "capacity_type": "c" * 120},
        {"units": str(MOST_UNITS)},
        {"upfront": f"{'9' * 12}.{'9' * 6}"},
        {"upfront": "0", "recurring": "0.000001"},
        {"withdrawn": "true"},
    ],
)
def test_what_is_at_its_limit_is_read(most):
    (found,) = read_commitments(file_of(ROW | most))
    assert found.is_withdrawn is ("withdrawn" in most)
    assert str(found.units) == (ROW | most)["units"]
    assert list(found.clusters) == (ROW | most)["clusters"]
