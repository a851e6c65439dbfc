"""Commitments over the API, on the page and by the command."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from billing.models import Commitment, CommitmentVersion
from billing.operations import record_runs
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_run, make_user

from .committing import HOURS, committed, file_of, split
from .ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    cluster = priced_cluster()
    record_runs([make_run(cluster, "acme/one", started_at=at(5), until_at=at(5, 4))])
    split()
    return cluster


@pytest.fixture
def finance(north):
    user = make_user()
    bind(user, "acme", "finance")
    return user


@pytest.fixture
def send(client, finance):
    def sent(path, text, user=finance, **more):
        body = {"organisation": "acme", "file": text, **more}
        return client.post(f"/api/v1/commitments/{path}", body, "application/json", headers=bearer(user))

    return sent


@pytest.fixture
def ask(client, finance):
    def asked(query="", path="commitments/report", user=finance):
        return client.get(f"/api/v1/{path}{query}", headers=bearer(user))

    return asked


def test_a_file_is_planned_applied_and_listed(send, ask):
    plan = send("plan", file_of({}))
    assert plan.status_code == 200, plan.content
    assert [one["action"] for one in plan.json()["changes"]] == ["create"]
    assert not Commitment.objects.exists()
    assert send("apply", file_of({"units": 9}), expect=plan.json()["hash"]).json()["code"] == "commitments_changed"
    applied = send("apply", file_of({}), expect=plan.json()["hash"])
    assert applied.json() == plan.json()
    (listed,) = ask(path="commitments").json()["items"]
    assert listed["name"] == "one"
    assert (listed["version"], listed["total"], listed["clusters"]) == (1, f"{HOURS}.000000", ["north"])
    assert plan.json()["changes"][0]["after"].items() <= listed.items()
    assert send("apply", file_of({})).json()["changes"] == []
    assert CommitmentVersion.objects.count() == 1
    assert AuditEntry.objects.filter(action="commitment.create").count() == 1


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("", "commitments", "required"),
        ("commitments: 3", "commitments", "required"),
        ("commitments: [1]", "commitments[0]", "not_an_object"),
        ("commitments: [", "file", "bad_yaml"),
        ("a: &x 1\nb: *x", "file", "yaml_alias"),
        ("commitments: []\ncommitments: []", "file", "given_twice"),
        (file_of({"colour": "red"}), "commitments[0].colour", "unknown_field"),
        (file_of({"units": "1.5"}), "commitments[0].units", "out_of_range"),
        (file_of({"upfront": "1e9"}), "commitments[0].upfront", "out_of_range"),
        (file_of({"upfront": ".nan"}), "commitments[0].upfront", "out_of_range"),
        (file_of({"upfront": "0"}), "commitments[0].upfront", "required"),
        (file_of({"start": "2026-10-01T00:30:00Z"}), "commitments[0].start", "out_of_range"),
        (file_of({"start": "2026-13-01T00:00:00Z"}), "commitments[0].start", "out_of_range"),
        (file_of({"until": "2026-10-01T00:00:00Z"}), "commitments[0].until", "empty_period"),
        (file_of({}, {}), "commitments[1].name", "given_twice"),
        (file_of({"clusters": "[north, north]"}), "commitments[0].clusters", "given_twice"),
        (file_of({"name": "a/b"}), "commitments[0].name", "out_of_range"),
    ],
)
def test_a_wrong_file_is_refused_at_its_field(send, text, field, code):
    answer = send("plan", text)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["code"]) == (field, code)


STRANGE = ["\\uD800", "\\0", "\\x1b[2J", "\\U0010FFFF", "\\UFFFFFFFF", "=1+1"]
"""As YAML writes them in quotes."""


@pytest.mark.parametrize("text", STRANGE)
@pytest.mark.parametrize("path", ["plan", "apply"])
def test_strange_characters_in_a_file_are_refused_like_other_words(send, path, text):
    for given, field in (({f'"{text}"': "x"}, "commitments[0]."), ({"clusters": f'["{text}"]'}, "commitments[0].clusters"),
                         ({"flavor": f'"{text}"'}, "commitments[0].flavor"), ({"name": f'"{text}"'}, "commitments[0].name")):  # fmt: skip
        answer = send(path, file_of(given))
        assert answer.status_code == 422, answer.content
        (error,) = answer.json()["errors"]
        assert error["field"].startswith("file" if error["code"] == "bad_yaml" else field)
    assert not Commitment.objects.exists()


def test_strange_characters_in_a_request_are_refused(client, finance):
    for body in (
        '{"organisation": "ac\\u0000me", "file": "commitments: []"}', '{"organisation": "acme", "file": "commitments: []\\u0000"}',
        '{"organisation": "acme", "file": "commitments: [\\ud800]"}', '{"organisation": "\\ud800", "file": "commitments: []"}',
    ):  # fmt: skip
        for path in ("plan", "apply"):
            answer = client.post(f"/api/v1/commitments/{path}", body, "application/json", headers=bearer(finance))
            assert answer.status_code in {400, 404, 422}, (body, answer.content)


def test_only_finance_changes_and_only_who_sees_all_reads(send, ask, client):
    viewer, team = make_user(), make_user()
    bind(viewer, "acme", "viewer")
    bind(team, "acme/one", "finance")
    assert send("apply", file_of({}), user=viewer).status_code == 403
    assert send("plan", file_of({}), user=team).status_code == 404
    assert ask("?organisation=acme&month=2026-10", user=team).status_code == 404
    assert ask("?organisation=acme&month=2026-10", user=viewer).status_code == 200
    assert ask(path="commitments", user=team).json()["items"] == []
    assert not Commitment.objects.exists()


def test_the_report_is_json_and_csv(send, ask):
    send("apply", file_of({}))
    split()
    report = ask("?organisation=acme&month=2026-10").json()
    (row,) = report["commitments"]
    assert (row["amortised"], row["used"], row["unused"]) == (
        f"{HOURS}.000000000000",
        "2.000000000000",
        f"{HOURS - 2}.000000000000",
    )
    assert (row["unit_hours"], row["used_unit_hours"]) == (f"{2 * HOURS}.000000000000", "4.000000000000")
    assert report["coverage"] == [
        {"flavor": "h100", "unit_hours": "4.000000000000", "covered_unit_hours": "4.000000000000"}
    ]
    assert report["tenants"] == [
        {
            "tenant": "acme/one", "currency": "USD", "used": "2.000000000000", "covered": "10.000000000000",
            "net": "-8.000000000000",
        },
    ]  # fmt: skip
    text = ask("?organisation=acme&month=2026-10&format=csv").content.decode()
    (line,) = csv.DictReader(io.StringIO(text))
    assert line == {name: " ".join(value) if isinstance(value, list) else str(value) for name, value in row.items()}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 422), ("?organisation=", 422), ("?organisation=acme&month=x", 422), ("?organisation=acme&format=pdf", 422),
        ("?organisation=%00", 404), ("?organisation=other", 404), ("?organisation=acme&colour=red", 422),
        ("?organisation=acme&month=2199-01", 200),
    ],
)  # fmt: skip
def test_wrong_questions_are_refused(ask, query, status):
    assert ask(query).status_code in ({status, 422} if "%00" in query else {status})


def test_the_page_shows_utilisation_coverage_and_what_tenants_bear(north, client, finance):
    committed()
    client.force_login(finance)
    text = client.get("/commitments/?month=2026-10").content.decode()
    for words in (
        f"{HOURS}.00",
        f"{HOURS - 2}.00",
        "2 of h100, on demand, on north",
        "format=csv",
        "Coverage",
        "Covered usage",
        "100.0",
    ):
        assert words in text, words
    assert "Nothing to show for this month" in client.get("/commitments/?month=2026-09").content.decode()
    assert client.get("/commitments/?organisation=other").status_code == 404
    assert client.get("/commitments/?month=x").status_code == 422
    team = make_user()
    bind(team, "acme/one", "viewer")
    client.force_login(team)
    assert "Nothing to show for this month" in client.get("/commitments/").content.decode()


def test_the_command_plans_applies_and_reports(north, tmp_path, capsys):
    file = tmp_path / "commitments.yaml"
    file.write_text(file_of({}))
    call_command("commitments", "plan", "acme", str(file))
    text = capsys.readouterr().out
    assert "+ one: kind reserved_instance" in text
    hash_ = text.rpartition("Hash: ")[2].strip()
    call_command("commitments", "apply", "acme", str(file), "--expect", hash_, "--json")
    assert json.loads(capsys.readouterr().out)["hash"] == hash_
    call_command("commitments", "plan", "acme", str(file))
    assert "Nothing changes." in capsys.readouterr().out
    split()
    call_command("commitments", "report", "acme", "--month", "2026-10")
    assert f"{HOURS}.000000000000,2.000000000000,{HOURS - 2}.000000000000" in capsys.readouterr().out
    file.write_text(file_of({"clusters": "[south]"}))
    with pytest.raises(CommandError, match="no cluster south"):
        call_command("commitments", "apply", "acme", str(file))
    with pytest.raises(CommandError, match="No such file"):
        call_command("commitments", "plan", "acme", str(tmp_path / "none"))
