"""Pages of finance ask the database as often for many clusters, teams and days as for few."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import LedgerPeriod, Price
from billing.operations import posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from tenancy.queries import SYSTEM
from tests.builders import bind, make_run, make_user

from .ledgers import at, priced_cluster
from .test_idle import offered

pytestmark = pytest.mark.django_db
PAGES = {
    "/": 40,
    "/months/": 12,
    "MONTH": 39,
    "/idle/?month=2026-10": 40,
    "/months/reconciliation/?month=2026-10": 40,
    "/usage/?month=2026-10": 24,
    "/usage/?month=2026-10&group_by=job": 24,
    "/usage/utilisation/?month=2026-10&group_by=job": 24,
    "/usage/recommendations/month/?month=2026-10": 24,
    "/usage/recommendations/?state=accepted": 24,
    "/forecast/?tenant=acme": 20,
    "/lost-work/?month=2026-10": 24,
    "/anomalies/": 12,
}


def add(names, teams, day):
    """Clusters with nodes, a price and a correction of it, and a run of each team on each of them."""
    for name in names:
        cluster = priced_cluster(name)
        offered(cluster)
        record_runs([
            make_run(cluster, f"acme/{team}", started_at=at(day, 10), until_at=at(day, 12)) for team in teams
        ])  # fmt: skip
        price = Price.objects.get(rate__cluster=cluster)
        correct_price(
            SYSTEM, NewCorrection(price.id, price.unit_price * 2, "USD", at(day), at(day) + timedelta(hours=11), "typo")
        )
    posting.post_days()


def counted(client, path):
    if path == "MONTH":
        path = f"/months/{LedgerPeriod.objects.get(month=at(1).date()).id}/"
    client.get(path)
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(path)
    assert answer.status_code == 200, path
    return len(seen)


def test_pages_ask_as_often_for_many_rows_as_for_few(client):
    user = make_user()
    bind(user, "acme", "finance")
    client.force_login(user)
    add(["north"], ["one"], 5)
    few = {path: counted(client, path) for path in PAGES}
    add(["east", "south", "west"], ["one", "two", "three"], 6)
    many = {path: counted(client, path) for path in PAGES}
    assert many == few
    assert {path: count for path, count in many.items() if count > PAGES[path]} == {}
