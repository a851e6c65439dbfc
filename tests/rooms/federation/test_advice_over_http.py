"""Standing recommendations over HTTP and on their pages: texts that run, rows of others, decisions, filters and pages."""

import csv
import io
from uuid import uuid4

import pytest
from django.db import connection

from billing.engine.recommendations import Kind
from billing.models import Recommendation
from billing.operations.recommendations import dismiss
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import (
    bearer,
    make_tenant,
)

from .advising import A_WEEK_AGO, HOUR, only, only_of, priced, ran, reader

pytestmark = pytest.mark.django_db
LIST = "/api/v1/recommendations"
PAGE = "/usage/recommendations/"


@pytest.fixture
def north():
    return priced("north", "h100", "4")[0]


@pytest.fixture
def hostile(north):
    """A recommendation whose texts a spreadsheet or a page would run."""
    priced("south", "h100", "3")
    ran(north, "train-1", hours=9)
    row = only("cheaper")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE billing_recommendation SET subject = '=1+1<script>x</script>', evidence = evidence || %s",
            ['{"name": "<script>x</script>"}'],
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
    return row


def test_page_json_and_csv_agree_and_are_inert(client, hostile):
    user = reader()
    [shown] = client.get(LIST, headers=bearer(user)).json()["items"]
    sheet = client.get(LIST, {"format": "csv"}, headers=bearer(user)).content.decode()
    [line] = csv.DictReader(io.StringIO(sheet))
    for name in ("id", "state", "kind", "tenant", "low", "high", "currency", "confidence", "found_on"):
        assert line[name] == str(shown[name])
    assert line["subject"] == "'=1+1<script>x</script>"
    client.force_login(user)
    for path in (PAGE, f"{PAGE}{hostile.id}/"):
        page = client.get(path).content.decode()
        assert "&lt;script&gt;x" in page
        assert "<script>x" not in page
        assert "9.00 USD" in page


def test_people_decide_over_http(client, hostile):
    user = reader()
    assert client.get(f"{LIST}/{hostile.id}", headers=bearer(user)).json()["realised"] is None
    for _ in range(2):
        got = client.post(f"{LIST}/{hostile.id}/accept", {}, "application/json", headers=bearer(user))
        assert (got.status_code, got.json()["state"]) == (200, "accepted")
    assert got.json()["realised"]["why_not"] == "too_few_before"
    refused = client.post(f"{LIST}/{hostile.id}/dismiss", {"reason": "no"}, "application/json", headers=bearer(user))
    assert (refused.status_code, refused.json()["code"]) == (409, "recommendation_not_open")
    assert client.post(f"{LIST}/{hostile.id}/reopen", headers=bearer(user)).json()["state"] == "open"
    for body in (
        {},
        {"reason": ""},
        {"reason": "x", "until": "2020-01-01"},
        {"reason": "x", "until": "soon"},
        {"reason": "x" * 501},
        {"reason": "x", "z": 1},
    ):
        got = client.post(f"{LIST}/{hostile.id}/dismiss", body, "application/json", headers=bearer(user))
        assert got.status_code == 422, body
    got = client.post(f"{LIST}/{hostile.id}/dismiss", {"reason": "no"}, "application/json", headers=bearer(user))
    assert (got.json()["state"], got.json()["reason"]) == ("dismissed", "no")


def test_people_decide_on_the_page(client, hostile):
    path = f"{PAGE}{hostile.id}/"
    client.force_login(reader(role="viewer"))
    assert "Dismiss until" not in client.get(path).content.decode()
    assert client.post(path, {"outcome": "accept"}).status_code == 403
    client.force_login(reader())
    for values in (
        {},
        {"outcome": "x"},
        {"outcome": "dismiss"},
        {"outcome": "dismiss", "reason": "a\nb"},
        {"outcome": "dismiss", "reason": "x", "until": "soon"},
    ):
        assert client.post(path, values).status_code == 422, values
    for values, state in (
        ({"outcome": "accept"}, "accepted"),
        ({"outcome": "reopen"}, "open"),
        ({"outcome": "dismiss", "reason": "no"}, "dismissed"),
    ):
        assert client.post(path, values).status_code == 302
        assert Recommendation.objects.get().state == state
        assert client.get(path).status_code == 200
        assert client.get(PAGE, {"state": state}).status_code == 200


def test_rows_of_others_are_absent(client, hostile):
    stranger, viewer = reader("other", "admin"), reader("acme/one", "viewer")
    for path in ("", "/accept", "/dismiss", "/reopen"):
        answers = []
        for id_ in (hostile.id, uuid4()):
            where, how = f"{LIST}/{id_}{path}", {"headers": bearer(stranger)}
            got = client.post(where, {"reason": "x"}, "application/json", **how) if path else client.get(where, **how)
            answers.append((got.status_code, got.json()["code"]))
        assert answers == [(404, "not_found")] * 2, answers
    assert client.get(LIST, headers=bearer(stranger)).json()["items"] == []
    assert client.get(LIST, {"tenant": "acme"}, headers=bearer(stranger)).status_code == 404
    assert client.get(LIST).status_code == 401
    assert len(client.get(LIST, headers=bearer(viewer)).json()["items"]) == 1
    assert client.post(f"{LIST}/{hostile.id}/accept", {}, "application/json", headers=bearer(viewer)).status_code == 403
    client.force_login(stranger)
    assert client.get(f"{PAGE}{hostile.id}/").status_code == 404
    assert "acme" not in client.get(PAGE).content.decode()


def test_lists_are_filtered_and_paged(client, north):
    priced("south", "h100", "3")
    for number in range(3):
        ran(north, f"{'abc'[number]}", at=A_WEEK_AGO + number * 20 * HOUR, hours=9)
    dismiss(SYSTEM, only_of("b ").id, "no")
    user = reader()
    seen, cursor = [], None
    while True:
        page = client.get(LIST, {"limit": 1} | ({"cursor": cursor} if cursor else {}), headers=bearer(user)).json()
        seen += [one["subject"][0] for one in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
    assert sorted(seen) == ["a", "b", "c"]
    for query, number in (
        ({"state": "open"}, 2),
        ({"state": "dismissed"}, 1),
        ({"kind": "cheaper"}, 3),
        ({"kind": "spot"}, 0),
        ({"tenant": "acme/one"}, 3),
    ):
        assert len(client.get(LIST, query, headers=bearer(user)).json()["items"]) == number
    for query in ({"state": "x"}, {"kind": "x"}, {"format": "x"}, {"colour": "x"}, {"cursor": "x"}):
        assert client.get(LIST, query, headers=bearer(user)).status_code == 422


def test_required_labels_over_http(client):
    make_tenant("acme")
    user, day = reader(), f"{now():%Y-%m-%d}"
    body = {"organisation": "acme", "effective_from": day, "keys": ["team", "example.org/stage"]}
    made = client.post("/api/v1/required-labels", body, "application/json", headers=bearer(user))
    assert (made.status_code, made.json()["keys"]) == (201, ["example.org/stage", "team"])
    assert len(client.get("/api/v1/required-labels", headers=bearer(user)).json()["items"]) == 1
    for keys in (["a b"], ["kubernetes.io/x"], [""], ["=x"], [f"k{n}" for n in range(11)]):
        got = client.post("/api/v1/required-labels", body | {"keys": keys}, "application/json", headers=bearer(user))
        assert got.status_code == 422, keys
    client.force_login(user)
    assert (
        client.post(f"{PAGE}labels/", {"organisation": "acme", "effective_from": day, "keys": "team, x"}).status_code
        == 302
    )
    assert "team" in client.get(f"{PAGE}labels/").content.decode()
    assert (
        client.post(f"{PAGE}labels/", {"organisation": "acme", "effective_from": "x", "keys": "team"}).status_code
        == 422
    )
    client.force_login(reader("other", "admin"))
    assert "example.org/stage" not in client.get(f"{PAGE}labels/").content.decode()


def test_every_kind_is_a_word_of_the_api():
    assert [kind.value for kind in Kind] == [
        "idle",
        "late_failures",
        "smaller",
        "cheaper",
        "spot",
        "unused_commitment",
        "missing_label",
    ]
