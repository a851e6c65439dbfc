"""What operators read at the command line is what the API says."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests.builders import bearer, bind, make_budget, make_user

from .invoicing import closed_month
from .ledgers import priced_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(client):
    closed_month(priced_cluster(amount="2.333333"))
    make_budget("acme/one", "100", period="month", starts_at=None, ends_at=None)
    make_budget("acme/two", "50", measure="gpu_hours", period="month", starts_at=None, ends_at=None)
    user = make_user()
    bind(user, "acme", "finance")
    return lambda path, **query: client.get(f"/api/v1/{path}", query, headers=bearer(user))


def run(capsys, *words):
    call_command(*words)
    return capsys.readouterr().out


def test_cost_is_the_usage_report(ask, capsys):
    query = {"month": "2026-10", "group_by": "tenant,flavor"}
    text = run(capsys, "cost", "--month", "2026-10", "--by", "tenant,flavor")
    assert text == ask("usage", **query, format="csv").content.decode()
    assert len(list(csv.DictReader(io.StringIO(text)))) == 2
    one = json.loads(run(capsys, "cost", "--month", "2026-10", "--tenant", "acme/one", "--json"))
    said = ask("usage", month="2026-10", tenant="acme/one", group_by="tenant").json()
    assert (one["items"], one["totals"]) == (said["items"], said["totals"])
    with_carbon = run(capsys, "cost", "--month", "2026-10", "--carbon").splitlines()[0]
    assert (
        with_carbon
        == ask("usage", month="2026-10", group_by="tenant", carbon="true", format="csv")
        .content.decode()
        .splitlines()[0]
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--month", "2026-13"], "YYYY-MM"),
        (["--by", "colour"], "tenant"),
        (["--tenant", "nowhere"], "not"),
    ],
)
def test_mistakes_are_named(ask, words, told):
    with pytest.raises(CommandError, match=told):
        call_command("cost", *words)


def test_budget_lists_what_the_api_lists(ask, capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "budget"))))
    assert [(row["tenant"], row["amount"], row["unit"], row["spent"]) for row in rows] == [
        ("acme/one", "100.00", "USD", "0.00"),
        ("acme/two", "50.00", "GPU-hours", "0.00"),
    ]
    listed = ask("budgets").json()["items"]
    assert sorted(json.loads(run(capsys, "budget", "--json")), key=lambda one: one["id"]) == sorted(
        listed, key=lambda one: one["id"]
    )
    (own,) = csv.DictReader(io.StringIO(run(capsys, "budget", "--tenant", "acme/two")))
    assert own["tenant"] == "acme/two"
    with pytest.raises(CommandError):
        call_command("budget", "--tenant", "nowhere")
