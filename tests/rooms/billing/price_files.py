"""Price book files that tests write, and what became of them."""

from datetime import datetime

from billing.models import Price, PriceCorrection, Rate
from foundation.models import OutboxMessage
from foundation.plain_json import instant
from tenancy.models import AuditEntry

HEAD = "apiVersion: switchyard/v1\nkind: PriceBook\nprices:\n"
WRITTEN = (Price, PriceCorrection, Rate, AuditEntry, OutboxMessage)


def line(start, amount="2", flavor="h100", **more):
    fields = {"cluster": "north", "flavor": flavor, "capacity_type": "on_demand", "from": start, "currency": "USD",
              "unit_price": amount, **more}  # fmt: skip
    shown = {name: instant(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    return "  - {" + ", ".join(f'{name}: "{value}"' for name, value in shown.items()) + "}\n"


def shown(plan):
    return [(one.change.action, one.rate.flavor, one.change.start) for one in plan.changes]


def refusals(plan):
    return {one.rate.flavor: one.refusal.code for one in plan.refused}


def timeline(flavor="h100"):
    rows = Price.objects.filter(rate__flavor=flavor).order_by("valid").values_list("unit_price", "valid")
    return [(int(amount), valid.lower, valid.upper) for amount, valid in rows]


def counts():
    return [model.objects.count() for model in WRITTEN]
