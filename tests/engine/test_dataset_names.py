"""Datasets: which one a tenant's job means by a name, and what their names and sizes may be."""

import pytest

from clusters.engine.datasets import BadSize, KnownData, catalogue_of, is_name, is_region, meant, size_of


def known(*paths, name="imagenet"):
    return [KnownData(path, name, 1, ()) for path in paths]


@pytest.mark.parametrize(
    ("paths", "tenant", "expected"),
    [
        (["acme", "acme/a", "acme/a/x"], "acme/a/x", "acme/a/x"),
        (["acme", "acme/a"], "acme/a/x", "acme/a"),
        (["acme"], "acme/a/x", "acme"),
        (["acme"], "acme", "acme"),
        (["acme/a/x", "acme/b", "globex"], "acme/a", None),
        (["acme/a"], "acme/ab", None),
        ([], "acme/a/x", None),
    ],
)
def test_a_job_means_its_tenants_own_dataset_else_that_of_the_nearest_ancestor(paths, tenant, expected):
    catalogue = catalogue_of([*known(*paths), *known("acme/a/x", "acme", name="other")])
    found = meant(catalogue, tenant, "imagenet")
    assert (found and found.tenant_path) == expected


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("150Gi", 150 * 2**30), ("1Ei", 2**60), ("0.5Ki", 512), ("1k", 1000)]
)
def test_a_size_is_whole_bytes(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0", "out_of_range"),
        ("1.5", "out_of_range"),
        ("-1", "out_of_range"),
        ("1152921504606846977", "out_of_range"),
        ("much", "bad_quantity"),
    ],
)
def test_any_other_size_is_refused(text, code):
    with pytest.raises(BadSize) as refused:
        size_of(text)
    assert refused.value.code == code


def test_names_are_lower_case_and_regions_may_have_capitals():
    for good in ("a", "7", "imagenet-1k.v2_a", "a" * 120):
        assert is_name(good)
    for bad in ("", "A", "-a", "a-", "a/b", "a\n", "a" * 121):
        assert not is_name(bad)
    for good in ("eu-west-1", "EU", "a" * 63):
        assert is_region(good)
    for bad in ("", "-eu", "eu-", "eu west", "eu\n", "a" * 64):
        assert not is_region(bad)
