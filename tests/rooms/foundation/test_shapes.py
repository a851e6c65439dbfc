from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from rest_framework import serializers

from foundation.api import as_problem
from foundation.plain_json import encode
from foundation.shapes import Instant, Labels, StrictShape, Text, Whole


class Inner(StrictShape):
    count = Whole(min_value=1, max_value=9)


class Outer(StrictShape):
    name = Text(max_length=5)
    at = Instant(required=False)
    labels = Labels(required=False)
    sets = Inner(many=True, required=False)
    one = Inner(required=False)
    shown = serializers.CharField(read_only=True)


def faults(**body):
    shape = Outer(data={"name": "x", **body})
    try:
        shape.is_valid(raise_exception=True)
    except serializers.ValidationError as error:
        return {(fault.field, fault.code) for fault in as_problem(error).errors}
    return set()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, set()),
        ({"shown": "x"}, {("shown", "unknown_field")}),
        ({"sets": [{"count": 1}, {"count": 1, "more": 2}]}, {("sets[1].more", "unknown_field")}),
        ({"sets": [{"count": 0}, {"count": 1}, {}]}, {("sets[0].count", "min_value"), ("sets[2].count", "required")}),
        ({"sets": ["x"]}, {("sets[0]", "not_an_object")}),
        ({"sets": {}}, {("sets", "not_a_list")}),
        ({"one": {"count": 10, "x": 1}}, {("one.count", "max_value"), ("one.x", "unknown_field")}),
        ({"one": []}, {("one", "not_an_object")}),
        ({"name": "toolong"}, {("name", "max_length")}),
        ({"name": 5}, {("name", "invalid")}),
        ({"name": True}, {("name", "invalid")}),
        ({"name": "a\tb"}, {("name", "out_of_range")}),
        ({"name": "\u202e"}, {("name", "out_of_range")}),
        ({"one": {"count": "5"}}, {("one.count", "invalid")}),
        ({"one": {"count": 5.0}}, {("one.count", "invalid")}),
        ({"one": {"count": True}}, {("one.count", "invalid")}),
        ({"one": {"count": 10**40}}, {("one.count", "max_value")}),
        ({"labels": {"a": "b", "example.org/x_1": "", "k": "v" * 63}}, set()),
        ({"labels": {"a": "v" * 64}}, {("labels", "invalid_label")}),
        ({"labels": {"": "v"}}, {("labels", "invalid_label")}),
        ({"labels": {"a\n": "v"}}, {("labels", "invalid_label")}),
        ({"labels": {"a": None}}, {("labels", "invalid_label")}),
        ({"at": "2026-01-31T12:00:00Z"}, set()),
        ({"at": "2026-01-31T12:00:00.123456+02:00"}, set()),
        ({"at": "2026-01-31"}, {("at", "invalid")}),
        ({"at": "2026-01-31T12:00:00"}, {("at", "invalid")}),
        ({"at": "9999-12-31T23:59:59-14:00"}, {("at", "invalid")}),
        ({"at": 1700000000}, {("at", "invalid")}),
        ({"at": None}, {("at", "null")}),
    ],
)
def test_a_body_is_taken_exactly_or_its_faults_are_named(body, expected):
    assert faults(**body) == expected


def test_text_is_not_trimmed():
    shape = Outer(data={"name": " a "})
    shape.is_valid(raise_exception=True)
    assert shape.validated_data["name"] == " a "


def test_plain_json_writes_instants_money_and_ids_as_the_contract_says():
    value = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC),
        "money": Decimal("12.340000"),
        "tiny": Decimal("1E-9"),
        "id": UUID("01234567-89ab-7def-8123-456789abcdef"),
        "many": (1, True, None, "ü"),
    }
    assert encode(value).decode() == (
        '{"at":"2026-01-02T03:04:05.678Z","money":"12.340000","tiny":"0.000000001",'
        '"id":"01234567-89ab-7def-8123-456789abcdef","many":[1,true,null,"ü"]}'
    )


def test_what_has_no_json_form_is_a_defect():
    with pytest.raises(NotImplementedError, match="object"):
        encode({"x": object()})
