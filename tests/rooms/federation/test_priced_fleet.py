"""The fleet as placement sees it carries the price book: now, announced, and for pods without GPUs."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.operations import create_price
from billing.operations.prices import NewPrice
from federation.queries.snapshot import load_fleet
from placement.values.model import PriceChange
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def put(flavor, amount, at, **beside):
    create_price(SYSTEM, NewPrice("north", flavor, Decimal(amount), effective_from=at, **beside))


def test_a_flavor_knows_what_it_costs_now_and_what_it_is_announced_to_cost(time_machine):
    time_machine.move_to(NOW, tick=False)
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    make_flavor(cluster, "cpu", gpu_model="", vendor="")
    put("h100", "2", NOW - HOUR)
    put("cpu", "0.05", NOW - HOUR)
    put("cpu", "0.06", NOW + HOUR)
    put("h100", "3", NOW + 2 * HOUR, cpu_price=Decimal("0.5"))

    (fleet,) = load_fleet(NOW)
    host = fleet.flavors["h100"]
    assert (host.unit_price, host.cpu_price, host.guest_cpu_price) == (2, None, Decimal("0.05"))
    assert host.price_changes == (
        PriceChange(NOW + HOUR, Decimal(2), None, None, Decimal("0.06"), None),
        PriceChange(NOW + 2 * HOUR, Decimal(3), Decimal("0.5"), None, Decimal("0.5"), None),
    )
    own = fleet.flavors["cpu"]
    assert [(change.at, change.unit_price) for change in own.price_changes] == [(NOW + HOUR, Decimal("0.06"))]
    assert load_fleet(NOW)[0] is fleet
