import io
import json
from datetime import datetime, timedelta

import pytest
from django.core.management import CommandError, call_command, load_command_class

from foundation import clock
from foundation.plain_json import instant
from tenancy.models import ApiToken, AuditEntry, OneTimeLink, RoleBinding, Tenant, User
from tenancy.operations import set_password_by_link
from tests.builders import make_tenant

pytestmark = pytest.mark.django_db


def run(name, *arguments, stdin="", monkeypatch=None):
    if monkeypatch:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    out = io.StringIO()
    call_command(name, *arguments, stdout=out)
    return json.loads(out.getvalue())


def test_bootstrap_makes_an_organisation_its_admin_and_a_token(client):
    answer = run("bootstrap", "--organisation", "acme", "--admin", "Root@Example.org")
    assert (answer["organisation"], answer["user"]) == ("acme", "root@example.org")
    me = client.get("/api/v1/me", headers={"Authorization": f"Bearer {answer['token']}"}).json()
    assert [(role["tenant"], role["role"]) for role in me["roles"]] == [("acme", "admin")]
    assert me["user"]["is_operator"]
    user = User.objects.get()
    assert user.is_staff
    assert not user.is_superuser
    assert not user.has_usable_password()
    assert answer["token"] not in str(list(AuditEntry.objects.values()))


def test_bootstrap_run_again_changes_nothing():
    first = run("bootstrap", "--organisation", "acme", "--admin", "root@example.org")
    before = [model.objects.count() for model in (Tenant, User, ApiToken, RoleBinding, AuditEntry)]
    again = run("bootstrap", "--organisation", "acme", "--admin", "root@example.org")
    assert again == {name: value for name, value in first.items() if name not in {"token", "token_expires_at", "link"}}
    assert [model.objects.count() for model in (Tenant, User, ApiToken, RoleBinding, AuditEntry)] == before
    renewed = run("bootstrap", "--organisation", "acme", "--admin", "root@example.org", "--new-token")
    assert renewed["token"] != first["token"]
    assert "link" not in renewed


def test_the_first_token_expires_unless_another_time_is_chosen():
    first = run("bootstrap", "--organisation", "acme", "--admin", "root@example.org")
    token = ApiToken.objects.get()
    assert first["token_expires_at"] == instant(token.expires_at)
    assert abs(token.expires_at - clock.now() - timedelta(days=30)) < timedelta(minutes=1)
    again = ("bootstrap", "--organisation", "acme", "--admin", "root@example.org", "--new-token", "--expires", "never")
    assert run(*again)["token_expires_at"] is None


def test_the_first_admin_signs_in_by_the_link_that_bootstrap_prints(client):
    arguments = ("bootstrap", "--organisation", "acme", "--admin", "root@example.org", "--address", "https://gateway/")
    address, _, secret = run(*arguments)["link"].partition("#")
    assert address == "https://gateway/sign-in/link/"
    set_password_by_link(secret, "correct horse battery")
    assert client.login(username="root@example.org", password="correct horse battery")
    assert client.get("/admin/").status_code == 200
    assert "link" not in run(*arguments)
    assert run(*arguments, "--new-link")["link"].partition("#")[2] != secret
    assert secret not in str(list(AuditEntry.objects.values())) + str(list(OneTimeLink.objects.values()))


def test_no_command_takes_a_password_as_an_argument():
    for name in ("bootstrap", "add_user"):
        parser = load_command_class("tenancy", name).create_parser("manage.py", name)
        takers = [action for action in parser._actions if "password" in "".join(action.option_strings)]
        assert [(action.option_strings, action.nargs) for action in takers] == [(["--password-stdin"], 0)]


def test_a_console_link_lets_a_new_user_choose_a_password(client):
    make_tenant("acme")
    link = run("add_user", "ann@example.org", "--role", "viewer@acme", "--new-link")["link"]
    set_password_by_link(link.partition("#")[2], "correct horse battery")
    assert client.login(username="ann@example.org", password="correct horse battery")


def test_bootstrap_takes_a_password_from_standard_input(client, monkeypatch):
    arguments = ("bootstrap", "--organisation", "acme", "--admin", "root@example.org", "--password-stdin")
    run(*arguments, stdin="correct horse battery\n", monkeypatch=monkeypatch)
    assert client.login(username="root@example.org", password="correct horse battery")
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize(
    ("organisation", "email", "said"),
    [
        ("Acme Corp", "root@example.org", "--organisation"),
        ("acme/b", "root@example.org", "--organisation"),
        ("acme", "root", "email"),
    ],
)
def test_bootstrap_says_what_is_wrong_and_leaves_nothing(organisation, email, said):
    with pytest.raises(CommandError, match=said):
        run("bootstrap", "--organisation", organisation, "--admin", email)
    assert Tenant.objects.count() == User.objects.count() == 0


def test_bootstrap_refuses_a_weak_password(monkeypatch):
    with pytest.raises(CommandError, match="password"):
        run(
            "bootstrap",
            "--organisation",
            "acme",
            "--admin",
            "a@b.co",
            "--password-stdin",
            stdin="short\n",
            monkeypatch=monkeypatch,
        )
    assert User.objects.count() == 0


def test_a_second_organisations_admin_sees_nothing_of_the_first(client):
    run("bootstrap", "--organisation", "acme", "--admin", "root@example.org")
    other = run("bootstrap", "--organisation", "other", "--admin", "boss@example.org")
    headers = {"Authorization": f"Bearer {other['token']}"}
    assert [tenant["path"] for tenant in client.get("/api/v1/tenants", headers=headers).json()["items"]] == ["other"]


def test_add_user_makes_a_user_with_roles_and_a_token(client):
    make_tenant("acme/research")
    arguments = ("add_user", "ann@example.org", "--role", "submitter@acme/research", "--new-token", "--scope", "read")
    answer = run(*arguments)
    me = client.get("/api/v1/me", headers={"Authorization": f"Bearer {answer['token']}"}).json()
    assert [(role["tenant"], role["role"]) for role in me["roles"]] == [("acme/research", "submitter")]
    assert me["token"]["scopes"] == ["read"]
    run(*arguments)
    assert User.objects.count() == RoleBinding.objects.count() == 1
    with pytest.raises(CommandError, match="emperor"):
        run("add_user", "ann@example.org", "--role", "emperor@acme")


def test_a_console_token_expires_as_one_of_the_page_does_unless_another_time_is_chosen(client):
    make_tenant("acme")
    for words, days in (((), 30), (("--expires", "7"), 7), (("--expires", "3660"), 3660)):
        answer = run("add_user", "ci@example.org", "--role", "submitter@acme", "--new-token", *words)
        shown = datetime.fromisoformat(answer["token_expires_at"])
        assert timedelta(0) <= clock.now() + timedelta(days=days) - shown < timedelta(minutes=1)
        me = client.get("/api/v1/me", headers={"Authorization": f"Bearer {answer['token']}"}).json()
        assert me["token"]["expires_at"] == answer["token_expires_at"]
    ApiToken.objects.update(expires_at=clock.now())
    assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {answer['token']}"}).status_code == 401


def test_a_console_token_lasts_without_end_only_if_that_is_asked_for():
    answer = run("add_user", "ci@example.org", "--new-token", "--expires", "never")
    assert answer["token_expires_at"] is None
    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize("days", ["0", "-1", "3661", "99999999999", "1.5", "", "Never", "7d"])
def test_a_console_token_is_not_made_for_a_time_that_is_none(days):
    with pytest.raises(CommandError, match="from 1 to 3660, or never"):
        run("add_user", "ci@example.org", "--new-token", f"--expires={days}")
    assert User.objects.count() == ApiToken.objects.count() == 0


def test_an_end_without_a_token_is_refused_before_anything_is_made():
    with pytest.raises(CommandError, match="--expires needs --new-token"):
        run("add_user", "ci@example.org", "--expires", "7")
    assert User.objects.count() == 0
