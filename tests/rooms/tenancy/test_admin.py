import pytest
from django.contrib.auth.models import Group

from tenancy.models import ApiToken, AuditEntry, User
from tenancy.operations import bootstrap, record_audit
from tenancy.queries import SYSTEM
from tests.builders import make_token, make_user

pytestmark = pytest.mark.django_db(transaction=True)
LOOKED_AT = ["tenant", "rolebinding", "membership", "onetimelink", "apitoken", "auditentry", "auditlink"]
ROWS = ["user", *LOOKED_AT]


@pytest.fixture
def operator(client):
    done = bootstrap("acme", "root@example.org")
    client.force_login(done.user)
    return done.user


@pytest.mark.parametrize("name", ROWS)
def test_an_operator_looks_at_every_kind_of_row(client, operator, name):
    assert client.get(f"/admin/tenancy/{name}/").status_code == 200


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_is_only_to_look_at_cannot_be_changed(client, operator, name):
    record_audit(SYSTEM, "thing.change", object_kind="thing")
    model = next(relation for relation in ROWS if relation == name)
    assert client.get(f"/admin/tenancy/{model}/add/").status_code == 403
    row = {"tenant": 1}.get(name) or "1"
    assert client.post(f"/admin/tenancy/{model}/{row}/delete/", {"post": "yes"}).status_code in {302, 403}
    assert AuditEntry.objects.filter(action="thing.change").exists()


def test_a_token_is_shown_without_secret_or_digest(client, operator):
    secret = make_token(make_user())
    token = ApiToken.objects.get(name="test")
    page = client.get(f"/admin/tenancy/apitoken/{token.id}/change/").content.decode()
    assert token.prefix in page
    assert secret not in page
    assert "digest" not in page.lower()


def test_a_user_added_or_changed_here_is_audited_without_values(client, operator):
    fields = {"email": "New@example.org", "display_name": "", "password1": "correct horse battery", "is_staff": "on"}
    assert client.post("/admin/tenancy/user/add/", fields).status_code == 302
    new = User.objects.get(email="new@example.org")
    assert (new.has_usable_password(), new.is_staff) == (False, False)
    change = {"display_name": "A New Name", "is_active": "on"}
    assert client.post(f"/admin/tenancy/user/{new.id}/change/", change).status_code == 302
    entries = AuditEntry.objects.filter(object_kind="user", object_id=str(new.id), actor_id=operator.id)
    assert list(entries.order_by("id").values_list("action", flat=True)) == ["user.create", "user.change"]
    assert "A New Name" not in str(list(entries.values()))


def test_no_list_is_narrowed_by_what_is_secret(client, operator):
    make_token(operator)
    for path in (
        "user/?password__startswith=!",
        "apitoken/?user__password__startswith=!",
        "apitoken/?digest__gt=x",
        "onetimelink/?digest__gt=x",
        "onetimelink/?made_by__password__startswith=!",
        "rolebinding/?user__password__startswith=!",
        "membership/?user__password__startswith=!",
    ):
        assert client.get(f"/admin/tenancy/{path}").status_code in {302, 400}, path


def test_users_are_never_deleted_here(client, operator):
    assert client.post(f"/admin/tenancy/user/{operator.id}/delete/", {"post": "yes"}).status_code == 403


def test_only_a_superuser_makes_superusers(client, operator):
    client.post(
        f"/admin/tenancy/user/{operator.id}/change/",
        {"email": operator.email, "is_active": "on", "is_staff": "on", "is_superuser": "on"},
    )
    operator.refresh_from_db()
    assert not operator.is_superuser


def test_a_group_is_changed_by_superusers_alone_and_that_is_audited(client, operator):
    assert client.post("/admin/auth/group/add/", {"name": "vision"}).status_code == 403
    User.objects.filter(id=operator.id).update(is_superuser=True)
    assert client.post("/admin/auth/group/add/", {"name": "vision"}).status_code == 302
    assert AuditEntry.objects.get(action="group.create").object_id == str(Group.objects.get(name="vision").id)


def test_ones_own_password_is_changed_on_ones_own_account_alone(client, operator):
    response = client.post("/admin/password_change/", {"old_password": "x", "new_password1": "y", "new_password2": "y"})
    assert (response.status_code, response["Location"]) == (302, "/account/")


def test_a_persons_page_in_the_admin_leads_to_where_a_link_is_made(client, operator):
    person = make_user()
    assert f"/people/{person.id}/" in client.get(f"/admin/tenancy/user/{person.id}/change/").content.decode()
    assert client.get(f"/people/{person.id}/").status_code == 200


def test_the_admin_has_no_sign_in_of_its_own(client):
    assert client.get("/admin/").status_code == 302
    response = client.get("/admin/login/?next=/admin/")
    assert response.status_code == 302
    assert "/admin/login" not in response["Location"]
    client.force_login(make_user())
    assert client.get("/admin/login/?next=/admin/").status_code == 403
