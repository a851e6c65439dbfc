"""Pages of tenants, roles and people: what they show to whom, in which pieces, and what a form does twice."""

import re

import pytest
from django.test import Client

from tenancy.models import RoleBinding, Tenant, User
from tenancy.web import lists
from tests.builders import bind, join, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    user = make_user("admin@example.org")
    bind(user, "acme", "admin")
    return user


@pytest.fixture
def page(admin):
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def pieces(monkeypatch):
    """Pages of three rows."""
    monkeypatch.setattr("tenancy.web.lists.PAGE_SIZE", "3")
    monkeypatch.setattr("tenancy.web.people.PAGE_SIZE", "3")


def all_of(client, path, pattern):
    """What the pattern finds on the page and those that follow it."""
    found, following = [], path
    while following:
        text = client.get(following).content.decode()
        found += re.findall(pattern, text)
        more = re.search(r'href="([^"]*\?[^"]*cursor=[^"]*)"', text)
        following = None if more is None else more[1].replace("&amp;", "&")
        if following and following.startswith("?"):
            following = path.partition("?")[0] + following
    return found


def test_the_tree_shows_each_tenant_after_the_one_above_it_over_all_pages(page, pieces):
    for path in ("acme/a-b/x", "acme/a/z", "acme/a/b/c", "acme/a0"):
        make_tenant(path)
    shown = all_of(page, "/tenants/", r'class="sub mono">([^<]*)<')
    assert shown == [
        "acme", "acme/a", "acme/a/b", "acme/a/b/c", "acme/a/z", "acme/a-b", "acme/a-b/x", "acme/a0",
    ]  # fmt: skip


def test_the_tree_is_narrowed_by_part_of_a_path_and_shows_nothing_foreign(page):
    make_tenant("acme/vision")
    make_tenant("other/vision")
    text = page.get("/tenants/?q=VISION").content.decode()
    assert "acme/vision" in text
    assert "other" not in text
    assert "No matching tenants" in page.get("/tenants/?q=nothing").content.decode()


def test_roles_are_shown_from_here_upwards_with_where_they_come_from(page, pieces):
    for number in range(4):
        bind(make_user(f"m{number}@example.org"), "acme/a", "viewer")
    below = make_tenant("acme/a/b")
    shown = all_of(page, f"/tenants/{below.id}/", r"<td><span>([^<]*@[^<]*)</span></td>")
    assert shown == [*(f"m{number}@example.org" for number in range(4)), "admin@example.org"]
    assert f'href="/tenants/{make_tenant("acme/a").id}/"' in page.get(f"/tenants/{below.id}/").content.decode()


def test_a_viewer_sees_no_control_of_administration():
    viewer, client = bind(make_user(), "acme/a", "viewer"), Client()
    client.force_login(viewer.user)
    text = client.get(f"/tenants/{viewer.tenant_id}/").content.decode()
    for sign in ("new", "edit", "roles", "people"):
        assert f"/tenants/{viewer.tenant_id}/{sign}/" not in text
    assert "Give a role" not in text


def test_members_are_shown_in_pieces_and_found_by_part_of_an_email(page, pieces, admin):
    for number in range(5):
        join(make_user(f"p{number}@example.org"), "acme")
    path = f"/tenants/{make_tenant('acme').id}/people/"
    shown = all_of(page, path, r'class="title-link"[^>]*>([^<]*)<')
    assert shown == ["admin@example.org", *(f"p{number}@example.org" for number in range(5))]
    assert all_of(page, f"{path}?q=P4@", r'class="title-link"[^>]*>([^<]*)<') == ["p4@example.org"]
    assert "No matching members" in page.get(f"{path}?q=stranger").content.decode()


def test_a_form_that_is_sent_twice_makes_one_thing(page):
    acme = make_tenant("acme")
    user = join(make_user("ben@example.org"), "acme")
    given = {"user": "ben@example.org", "role": "viewer", "days": ""}
    forms = ((f"/tenants/{acme.id}/new/", {"name": "a", "kind": "team"}), (f"/tenants/{acme.id}/roles/", given))
    for path, form in forms:
        assert page.post(path, form).status_code == 302
        again = page.post(path, form)
        assert again.status_code == 409
        assert "already" in again.content.decode()
    assert Tenant.objects.filter(name="a").count() == RoleBinding.objects.filter(user=user).count() == 1
    binding = RoleBinding.objects.get(user=user)
    path = f"/tenants/{acme.id}/roles/{binding.id}/"
    assert [page.post(path, {"role": "viewer", "days": "keep"}).status_code for _ in range(2)] == [302, 302]
    assert [page.post(f"{path}remove/").status_code for _ in range(2)] == [302, 404]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "UPPER"}, "lower-case letters"),
        ({"name": ""}, "lower-case letters"),
        ({"name": "a\nb"}, "lower-case letters"),
        ({"labels": "no sign"}, "one name=value per line"),
        ({"labels": "bad key=x"}, "is not a Kubernetes label"),
        ({"parent": "acme/nowhere"}, "there is no such tenant"),
        ({"parent": "other"}, "there is no such tenant"),
        ({"parent": "acme/a"}, "a tenant cannot be below itself"),
        ({"parent": "acme/a/b"}, "a tenant cannot be below itself"),
        ({"parent": ""}, "there is no such tenant"),
    ],
)
def test_what_cannot_be_saved_is_said_at_its_field_and_kept_as_typed(page, change, word):
    make_tenant("other")
    tenant = make_tenant("acme/a/b").parent
    form = {"name": "a", "parent": "acme", "labels": "", **change}
    answer = page.post(f"/tenants/{tenant.id}/edit/", form)
    assert answer.status_code == 422
    assert word in answer.content.decode()
    tenant.refresh_from_db()
    assert (tenant.path, tenant.labels) == ("acme/a", {})


def test_a_tenant_is_renamed_moved_and_labelled_by_one_form(page):
    make_tenant("acme/lab")
    tenant = make_tenant("acme/a/b").parent
    form = {"name": "vision", "parent": "acme/lab", "labels": "cost-centre=42\r\nempty="}
    assert page.post(f"/tenants/{tenant.id}/edit/", form).status_code == 302
    tenant.refresh_from_db()
    assert (tenant.path, tenant.labels) == ("acme/lab/vision", {"cost-centre": "42", "empty": ""})
    assert Tenant.objects.filter(path="acme/lab/vision/b").exists()
    assert 'value="acme/lab"' in page.get(f"/tenants/{tenant.id}/edit/").content.decode()


def test_only_an_empty_tenant_is_removed(page):
    leaf = make_tenant("acme/a/b")
    answer = page.post(f"/tenants/{leaf.parent_id}/remove/")
    assert answer.status_code == 409
    assert "still has" in answer.content.decode()
    assert page.post(f"/tenants/{leaf.id}/remove/").status_code == 302
    assert not Tenant.objects.filter(id=leaf.id).exists()


def test_only_operators_found_and_remove_organisations_on_the_pages(page, admin):
    assert page.get("/tenants/new/").status_code == page.post("/tenants/new/", {"name": "x"}).status_code == 403
    assert page.post(f"/tenants/{make_tenant('acme').id}/remove/").status_code == 403
    User.objects.filter(id=admin.id).update(is_staff=True)
    assert page.post("/tenants/new/", {"name": "newcorp"}).status_code == 302
    assert RoleBinding.objects.get(tenant__path="newcorp").user_id == admin.id
    assert page.post(f"/tenants/{make_tenant('newcorp').id}/remove/").status_code == 302


def test_one_who_takes_their_own_last_role_is_led_where_they_may_be(page, admin):
    bind(make_user(), "acme", "admin")
    own = RoleBinding.objects.get(user=admin)
    answer = page.post(f"/tenants/{own.tenant_id}/roles/{own.id}/remove/", follow=True)
    assert answer.status_code == 200
    assert "No tenants yet" in answer.content.decode()


def test_a_person_is_shown_with_the_roles_that_the_viewer_may_know(page):
    ann = make_user("ann@example.org")
    bind(ann, "acme/a", "viewer")
    bind(ann, "other/secret", "admin")
    text = page.get(f"/people/{ann.id}/").content.decode()
    assert "acme/<wbr>a" in text
    assert "secret" not in text


def test_the_pages_cost_the_same_however_much_they_show(page, django_assert_max_num_queries):
    acme = make_tenant("acme")
    for number in range(30):
        make_tenant(f"acme/t{number}")
        bind(make_user(), "acme", "viewer")
    for path, most in (("/tenants/", 8), (f"/tenants/{acme.id}/", 16), (f"/tenants/{acme.id}/people/", 14)):
        with django_assert_max_num_queries(most):
            assert page.get(path).status_code == 200
    assert int(lists.PAGE_SIZE) >= 30
