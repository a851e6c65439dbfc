import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.amounts import MAX_AMOUNT, BadAmount, format_amount, is_resource, parse_amount

resources = st.sampled_from(["gpu", "gpu:H100-80GB", "cpu", "memory"])


@given(resources, st.integers(0, MAX_AMOUNT))
def test_what_is_written_reads_back_exactly(resource, amount):
    assert parse_amount(resource, format_amount(resource, amount)) == amount


@pytest.mark.parametrize("text", ["3Mi", "1023Mi", "1Gi", "1025Mi", "3Ti", "1025Gi", "2Pi", "0Mi"])
def test_memory_is_written_in_its_largest_whole_unit(text):
    assert format_amount("memory", parse_amount("memory", text)) == text


@pytest.mark.parametrize(
    ("resource", "text", "code"),
    [
        ("gpu", "", "not_a_quantity"),
        ("gpu", "-1", "not_a_quantity"),
        ("gpu", "1Gi", "not_a_quantity"),
        ("gpu", "0.0001", "too_fine"),
        ("cpu", "1u", "not_a_quantity"),
        ("cpu", "9" * 18, "out_of_range"),
        ("memory", "1", "too_fine"),
        ("memory", "1E", "too_fine"),
        ("memory", "-1Gi", "not_a_quantity"),
        ("memory", "NaN", "not_a_quantity"),
    ],
)
def test_what_is_not_an_amount_is_refused_with_a_code(resource, text, code):
    with pytest.raises(BadAmount) as refused:
        parse_amount(resource, text)
    assert refused.value.code == code


def test_only_known_resources_can_be_limited():
    assert [
        name
        for name in ("gpu", "cpu", "memory", "jobs", "gpu:A100", "gpu:", "disk", "gpu:a b", "GPU")
        if is_resource(name)
    ] == [
        "gpu",
        "cpu",
        "memory",
        "jobs",
        "gpu:A100",
    ]


@pytest.mark.parametrize(
    ("resource", "text", "unit"), [("memory", "1Ki", "whole mebibytes (Mi)"), ("gpu", "0.0001", "thousandths")]
)
def test_what_is_too_fine_names_the_unit_that_is_counted(resource, text, unit):
    with pytest.raises(BadAmount) as refused:
        parse_amount(resource, text)
    assert str(refused.value) == f"{resource} is counted in {unit}; {text} is not a whole number of them"
