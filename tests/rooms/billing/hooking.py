"""What the tests of alert hooks share: a receiver on loopback, and budgets whose thresholds are reached."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.db.models import F

from billing.models import AlertDelivery, AlertHook
from billing.operations import create_price, record_runs
from billing.operations.deliveries import deliver_alerts
from billing.operations.hooks import WantedHook, create_hook
from billing.operations.prices import NewPrice
from tenancy.queries import SYSTEM
from tests.builders import make_budget, make_cluster, make_flavor, make_run, make_tenant

PATH, SECRET_PATH = "/alerts", "/services/canary-8d1f77"
KINDS = ("budget_spent", "budget_forecast", "anomaly", "document")
LONG = timedelta(days=2)
SINCE = datetime(2026, 11, 1, tzinfo=UTC)


class Receiver:
    """What was posted, and what is answered: a status, or a function of the request."""

    def __init__(self, api):
        self.api, self.posts, self.answer = api, [], 200
        for path in (PATH, SECRET_PATH):
            api.answers[path] = self.take

    def url(self, path=PATH):
        return f"http://127.0.0.1:{self.api.port}{path}"

    def take(self, request):
        self.posts.append((dict(request.headers), bytes(request.sent)))
        if callable(self.answer):
            self.answer(request)
        else:
            request.say(self.answer, {})

    @property
    def bodies(self):
        return [json.loads(body) for _, body in self.posts]

    @property
    def ids(self):
        return [headers["Switchyard-Delivery"] for headers, _ in self.posts]


def make_hook(receiver, tenant="acme", name="finance", *, kinds=KINDS, form="json", path=PATH, actor=SYSTEM):
    make_tenant(tenant)
    return create_hook(actor, WantedHook(tenant, name, receiver.url(path), kinds, form))


def reach_half(path="acme/research", cluster=None):
    """An hour of 2.50 USD, which is half of a budget: one alert."""
    if cluster is None:
        cluster = make_cluster(name="north")
        make_flavor(cluster, "h100")
        create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=SINCE))
    make_budget(path, "5", stops=False)
    record_runs([make_run(cluster, path)])
    return cluster


def due_now():
    """What is pending is due, and no hook is busy: as after any wait."""
    AlertDelivery.objects.filter(state="pending").update(next_at=F("next_at") - LONG)
    AlertHook.objects.update(busy_until=F("busy_until") - LONG)


def deliver():
    due_now()
    deliver_alerts()
