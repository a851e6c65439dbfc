"""What the tests of the ledger share."""

from datetime import UTC, datetime
from decimal import Decimal

from django.db import connection
from django.db.models import Sum

from billing.models import LedgerLine
from billing.operations import create_price
from billing.operations.prices import NewPrice
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor

SEPTEMBER = datetime(2026, 9, 1, tzinfo=UTC)
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)


def at(day, hour=0, month=10):
    return datetime(2026, month, day, hour, tzinfo=UTC)


def priced_cluster(name="north", flavor="h100", amount="2.5", since=SEPTEMBER, **more):
    """A cluster with a flavor that costs `amount`."""
    cluster = make_cluster(name=name)
    make_flavor(cluster, flavor)
    create_price(SYSTEM, NewPrice(name, flavor, Decimal(amount), effective_from=since, **more))
    return cluster


def settle_pending_checks():
    """What commit would do; the surrounding test transaction never gets there."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def expense(**which):
    """The sum that tenants were charged."""
    lines = LedgerLine.objects.filter(account__kind="tenant_expense", **which)
    return lines.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
