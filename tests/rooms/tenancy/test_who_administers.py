"""Every role tries every act of administration at every place of the tree, on the pages and over HTTP."""

import itertools
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from django.test import Client

from foundation.clock import now
from tenancy.models import AuditEntry, RoleBinding
from tests.builders import bearer, bind, join, make_tenant, make_user
from tests.laws import third_of

pytestmark = [pytest.mark.django_db, pytest.mark.law]
ROLES = ("viewer", "submitter", "manager", "finance", "admin")
CAN_GIVE = {"manager": {"viewer", "submitter", "manager"}, "admin": set(ROLES)}
"""Who can change the tree and bind roles, and which roles they can give and take."""
SEEN = {"acme/a", "acme/a/b"}
"""The caller's role is bound at acme/a."""
PLACES = (*sorted(SEEN), "acme", "acme/c", "other")


@pytest.fixture
def world():
    """In each tenant one person with each role, and an empty tenant below it."""
    for place in PLACES:
        make_tenant(f"{place}/leaf")
        for role in ROLES:
            bind(make_user(f"{role}@{place.replace('/', '.')}.example"), place, role)
    for organisation in ("acme", "other"):
        bind(make_user(f"root@{organisation}.example"), organisation, "admin")
        join(make_user(f"member@{organisation}.example"), organisation)


def person(role, place):
    return RoleBinding.objects.get(tenant__path=place, role=role, user__email__startswith=role)


def acts(place):
    """(name, the role that it gives or takes, page's path and form, API's verb, path and body) of each act."""
    tenant, leaf = make_tenant(place), make_tenant(f"{place}/leaf")
    root = place.partition("/")[0]
    here, api = f"/tenants/{tenant.id}", f"/api/v1/tenants/{tenant.id}"
    form = {"name": "new", "kind": "team"}
    yield "create", None, (f"{here}/new/", form), ("post", "/api/v1/tenants", {**form, "parent": place})
    edit = ({"name": "renamed", "parent": place}, {"name": "renamed"})
    yield "rename", None, (f"/tenants/{leaf.id}/edit/", edit[0]), ("patch", f"/api/v1/tenants/{leaf.id}", edit[1])
    yield "remove", None, (f"/tenants/{leaf.id}/remove/", {}), ("delete", f"/api/v1/tenants/{leaf.id}", None)
    for role in ROLES if place in SEEN else ("viewer", "admin"):
        held = person(role, place)
        given = {"user": f"member@{root}.example", "role": role}
        yield f"give {role}", role, (f"{here}/roles/", given), ("post", f"{api}/role-bindings", given)
        one, one_api = f"{here}/roles/{held.id}/", f"{api}/role-bindings/{held.id}"
        ends = {"expires_at": now().replace(year=now().year + 1).isoformat()}
        yield f"end {role}", role, (one, {"role": role, "days": "30"}), ("patch", one_api, ends)
        yield f"take {role}", role, (f"{one}remove/", {}), ("delete", one_api, None)
        if role != "viewer":
            low = person("viewer", place)
            raised = ({"role": role, "days": "keep"}, {"role": role})
            path = (f"{here}/roles/{low.id}/", f"{api}/role-bindings/{low.id}")
            yield f"raise to {role}", role, (path[0], raised[0]), ("patch", path[1], raised[1])
        invited = {"email": "new@example.org", "role": role}
        yield f"invite {role}", role, (f"{here}/people/", invited), ("post", f"{api}/invitations", invited)


DIGEST = "SELECT md5(string_agg(one::text, '|' ORDER BY one.id)) FROM {} AS one"
TABLES = ("tenancy_tenant", "tenancy_rolebinding", "tenancy_membership", "tenancy_onetimelink", "tenancy_user")


def rows():
    """A digest of each table that an act could change."""
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(DIGEST.format(table) for table in TABLES))
        return cursor.fetchall()


@contextmanager
def undone():
    """Rolls back what happened inside."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def allowed(own, place, role):
    """200 for what is done, else the status of the refusal; the rule in words of its own."""
    if own is None or place not in SEEN:
        return 404
    return 200 if own in CAN_GIVE and (role is None or role in CAN_GIVE[own]) else 403


@pytest.mark.parametrize("own", third_of(["manager", "viewer", "submitter", "admin", "finance", None]))
def test_each_role_does_on_the_pages_and_over_http_what_it_allows_and_nothing_else(world, own):
    caller = join(make_user("caller@example.org"), "acme")
    if own:
        bind(caller, "acme/a", own)
    client, headers = Client(), bearer(caller)
    client.force_login(caller)
    before = rows()
    for place in PLACES:
        for (name, role, page, call), way in itertools.product(list(acts(place)), ("page", "api")):
            wanted = allowed(own, place, role)
            with undone():
                if way == "page":
                    answer = client.post(*page)
                else:
                    verb, path, body = call
                    answer = getattr(client, verb)(path, body, content_type="application/json", headers=headers)
                status = 200 if answer.status_code in {200, 201, 204, 302} else answer.status_code
                if (name, way, status) == ("create", "api", 422):  # a parent that is not seen is an unknown one
                    status = 404
                assert status == wanted, (own, place, name, way, answer.content[:500])
                assert (rows() != before) == (status == 200), (own, place, name, way)
                done = AuditEntry.objects.filter(outcome="done").exists()
                assert done == (status == 200), (own, place, name, way)
