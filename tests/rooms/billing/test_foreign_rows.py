"""Rows of another organisation look like rows that do not exist: on every path of this room, whatever is added to it."""

import re
from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from billing.models import LedgerPeriod, NegativeIdle, NegativeNodeHour, PostingConflict, Price, SpendAnomaly
from billing.operations import posting
from billing.operations.disputes import open_remark
from billing.operations.egress import NewEgressPrice, create_egress_price
from billing.operations.hooks import WantedHook, create_hook, send_test
from billing.operations.overrides import request_override
from billing.urls import api_urlpatterns, web_urlpatterns
from foundation.clock import now
from tenancy.models import Tenant
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bearer, bind, make_budget, make_user

from .invoicing import closed_month, issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_conflicts import adjustment

pytestmark = pytest.mark.django_db
PARAMETER = re.compile(r"<uuid:(\w+)>")
VERBS = ("get", "post", "put", "patch", "delete")


@pytest.fixture
def rows():
    """The id of a row of acme for each parameter of a path, by the path's first words."""
    north = priced_cluster()
    closed_month(north)
    acme, one = Tenant.objects.get(path="acme"), Tenant.objects.get(path="acme/one")
    budget, invoice, period = make_budget("acme/one"), issued(), LedgerPeriod.objects.get()
    asker = make_user()
    bind(asker, "acme", "admin")
    override = request_override(
        actor_for(asker), budget.id, amount=Decimal(5), reason="a demo", expires_at=now() + timedelta(hours=1)
    )
    for amount in ("1", "2"):
        posting.post(adjustment(amount, acme))
    settle_pending_checks()
    anomaly = SpendAnomaly.objects.create(
        organisation=acme, tenant=one, tenant_path=one.path, flavor="h100", currency="USD", day=at(5).date(), cost=9, usual=1,
        spread=1,
    )  # fmt: skip
    place = {"cluster": north, "currency": "USD", "cost": 1, "charged": 2}
    hour = NegativeNodeHour.objects.create(organisation=acme, node="n1", hour=at(5), cause="overlap", **place)
    idle = NegativeIdle.objects.create(period=period, flavor="h100", day=at(5).date(), **place)
    egress = create_egress_price(SYSTEM, NewEgressPrice("eu-*", "us-east", Decimal("0.02"), organisation="acme"))
    remark = open_remark(SYSTEM, invoice.id, 1, "dispute", "too much")
    hook, _ = create_hook(SYSTEM, WantedHook("acme", "finance", "http://127.0.0.1:9/alerts", ("budget_spent",), "json"))
    delivery = send_test(SYSTEM, hook.id)
    return {
        ("alert-hooks", "hook_id"): hook.id,
        ("alert-hooks", "uid"): delivery.uid,
        ("budgets", "hook_id"): hook.id,
        ("budgets", "uid"): delivery.uid,
        ("anomalies", "anomaly_id"): anomaly.id,
        ("budgets", "budget_id"): budget.id,
        ("budgets", "override_id"): override.id,
        ("invoices", "invoice_id"): invoice.id,
        ("invoices", "remark_id"): remark.id,
        ("invoice-remarks", "remark_id"): remark.id,
        ("months", "period_id"): period.id,
        ("months", "conflict_id"): PostingConflict.objects.get().id,
        ("periods", "period_id"): period.id,
        ("posting-conflicts", "conflict_id"): PostingConflict.objects.get().id,
        ("negative-idle", "row_id"): idle.id,
        ("node-hours", "row_id"): hour.id,
        ("idle", "row_id"): hour.id,
        ("prices", "price_id"): Price.objects.get().id,
        ("egress-prices", "price_id"): egress.id,
        ("egress", "price_id"): egress.id,
    }


def filled(route, rows):
    """The route with the ids of rows. A new kind of row fails here until it is added above."""
    first = "egress" if route.startswith("prices/egress/") else route.partition("/")[0]
    return PARAMETER.sub(lambda found: str(rows[first, found[1]]), route)


def paths(rows):
    """(path with real ids, the same with ids of nothing) of all that names a row."""
    for prefix, patterns in (("/api/v1/", api_urlpatterns), ("/", web_urlpatterns)):
        for route in (str(one.pattern) for one in patterns):
            if "<uuid:" in route:
                yield prefix + filled(route, rows), prefix + PARAMETER.sub(lambda _: str(uuid4()), route)


def answered(client, verb, path, headers):
    """Status and body, without what differs from request to request."""
    body = {} if verb == "get" else {"data": b"{}", "content_type": "application/json"}
    answer = getattr(client, verb)(path, headers=headers, **body)
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    text = re.sub(
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", content.decode(errors="replace")
    )
    return answer.status_code, text if answer.headers["Content-Type"].endswith("json") else ""


def test_a_foreign_row_is_answered_as_one_that_is_not_there(client, rows):
    stranger = make_user()
    bind(stranger, "other", "admin")
    for real, absent in paths(rows):
        is_api = real.startswith("/api/")
        if not is_api:
            client.force_login(stranger)
        headers = bearer(stranger) if is_api else {}
        for verb in VERBS:
            seen, unseen = (answered(client, verb, path, headers) for path in (real, absent))
            assert (real, verb, seen) == (real, verb, unseen)
            assert seen[0] in {404, 405, 422, 400}, (real, verb, seen)
        client.logout()


def test_the_same_paths_are_there_for_their_owner(client, rows):
    owner = make_user()
    bind(owner, "acme", "admin")
    client.force_login(owner)
    for real, _ in paths(rows):
        status = client.get(real, headers=bearer(owner) if real.startswith("/api/") else {}).status_code
        assert status in {200, 405}, (real, status)
