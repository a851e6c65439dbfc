"""What a tenant typed in part means, and which tenant a form begins with."""

import pytest

from tenancy.queries import first_choice, match_tenants, tenant_choices
from tests.builders import actor_for, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
PATHS = ("acme", "acme/research", "acme/research/vision", "acme/sales", "other/vision-lab")


@pytest.fixture
def actor():
    user = make_user()
    for path in (*PATHS, "acme/research/vision/eu", "foreign/vision"):
        make_tenant(path)
    bind(user, "acme")
    bind(user, "other/vision-lab")
    return actor_for(user)


def found(match):
    return sorted(match.tenants.values_list("path", flat=True))


def test_a_part_finds_every_tenant_that_has_it_in_its_path_and_what_is_below(actor):
    match = match_tenants(actor, "Vision")
    assert found(match) == ["acme/research/vision", "acme/research/vision/eu", "other/vision-lab"]
    assert (match.typed, match.is_exact, match.count) == ("Vision", False, 2)
    assert match.named == ("acme/research/vision", "other/vision-lab")
    assert match.path == ""


def test_a_whole_path_is_that_tenant_with_what_is_below_and_no_namesake(actor):
    make_tenant("acme/research-2")
    match = match_tenants(actor, " acme/research/ ")
    assert (found(match), match.is_exact, match.path) == (
        ["acme/research", "acme/research/vision", "acme/research/vision/eu"],
        True,
        "acme/research",
    )


def test_a_part_of_one_tenant_alone_stands_for_its_path(actor):
    match = match_tenants(actor, "sal")
    assert (match.path, match.named, match.is_exact) == ("acme/sales", ("acme/sales",), False)


@pytest.mark.parametrize("typed", ["nobody", "foreign", "foreign/vision", "%", "_"])
def test_what_matches_nothing_that_may_be_seen_is_nothing_and_no_refusal(actor, typed):
    match = match_tenants(actor, typed)
    assert (found(match), match.count, match.is_exact, match.typed) == ([], 0, False, typed)


def test_nothing_typed_is_everything_that_may_be_seen(actor):
    match = match_tenants(actor, "")
    assert (len(found(match)), match.is_exact, match.named, match.path) == (6, True, (), "")


@pytest.mark.parametrize(
    ("paths", "asked", "last_used", "chosen"),
    [
        (PATHS, "", "acme/sales", "acme/sales"),
        (PATHS, "", "acme/gone", "acme/research/vision"),
        (("acme", "acme/a", "acme/b"), "", None, ""),
        (("acme",), "", None, "acme"),
        ((), "", None, ""),
        (PATHS, "acme", "acme/sales", "acme"),
        (PATHS, "SALES", "acme", "acme/sales"),
        (PATHS, "vision", "acme/sales", ""),
        (PATHS, "nobody", "acme/sales", ""),
    ],
)
def test_a_form_begins_with_what_was_asked_for_else_the_last_used_else_the_only_deepest(
    paths, asked, last_used, chosen
):
    assert first_choice(paths, asked=asked, last_used=last_used) == chosen


def test_a_form_without_a_first_choice_asks_for_one():
    assert tenant_choices(["a", "b"], "") == (("", "Choose a tenant"), ("a", "a"), ("b", "b"))
    assert tenant_choices(["a", "b"], "b") == (("a", "a"), ("b", "b"))
    assert tenant_choices([], "") == ()
