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


@pytest.mark.parametrize(
    ("resource", "largest"),
    [("gpu", "1000000000000"), ("cpu", "1000000000000"), ("memory", f"{10**15}Mi"), ("jobs", "1000000000000000")],
)
def test_an_amount_goes_up_to_its_limit(resource, largest):
    assert parse_amount(resource, largest) == MAX_AMOUNT == 10**15
    digits = largest.removesuffix("Mi")
    with pytest.raises(BadAmount) as refused:
        parse_amount(resource, largest.replace(digits, str(int(digits) + 1)))
    assert refused.value.code == "out_of_range"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("gpu", 0, "0"), ("gpu", 1, "0.001"), ("gpu", 10, "0.01"), ("gpu", 999, "0.999"), ("gpu", 1000, "1"),
        ("gpu", 10_500, "10.5"), ("gpu:L4", 1500, "1.5"), ("cpu", 1, "1m"), ("cpu", 999, "999m"), ("cpu", 1000, "1"),
        ("cpu", 1001, "1001m"), ("memory", 0, "0Mi"), ("memory", 1, "1Mi"), ("memory", 2048, "2Gi"), ("jobs", 1, "1"),
        ("jobs", 1500, "1500"),
    ],
)  # fmt: skip
def test_an_amount_is_written_in_its_shortest_form(resource, amount, text):
    assert format_amount(resource, amount) == text
    assert parse_amount(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "text", "told"),
    [
        ("gpu", "-1", "write gpu as a quantity such as 8, 0.5 or 500m"),
        ("memory", "-1Gi", "write memory as a quantity such as 256Gi"),
        ("jobs", "1.5", "jobs is counted in whole jobs; 1.5 is not a whole number of them"),
        ("jobs", "1m", "jobs is counted in whole jobs; 1m is not a whole number of them"),
        ("cpu", "9999999999999", "9999999999999 is too large"),
        ("cpu", "0.0005", "cpu is counted in thousandths; 0.0005 is not a whole number of them"),
    ],
)
def test_what_is_told_of_an_amount_that_is_refused(resource, text, told):
    with pytest.raises(BadAmount) as refused:
        parse_amount(resource, text)
    assert str(refused.value) == told


def test_the_name_of_a_gpu_model_has_at_most_63_characters():
    assert is_resource(f"gpu:{'A' * 63}")
    assert not is_resource(f"gpu:{'A' * 64}")
    assert not is_resource("gpu:-A")
