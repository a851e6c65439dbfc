"""The page of a month's cost: its pictures say what the reports say."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from billing.operations import record_runs
from billing.operations.exchange import set_billing_currency
from billing.queries import usage_report
from billing.queries.sharing_report import Bridge, sharing_report
from billing.web.waterfall import BRIDGE, waterfall_of
from tenancy.queries import SYSTEM
from tests.builders import make_run, make_tenant, make_user

from .ledgers import at, priced_cluster
from .test_idle import offered, policy, used

pytestmark = pytest.mark.django_db
PAGE = "/usage/overview/?organisation=acme&month=2026-10"
BAR = re.compile(r'<rect class="(rise|fall)" x="([\d.]+)%" width="([\d.]+)%"')
BOX = re.compile(
    r'<svg x="([\d.]+)%" y="([\d.]+)%" width="([\d.]+)%" height="([\d.]+)%" overflow="hidden"><title>([^:]+): '
)


@pytest.fixture
def shared():
    """Two teams on one cluster, of which idle capacity is shared."""
    cluster = priced_cluster()
    offered(cluster)
    used(cluster, one=4, two=2)
    policy(idle="proportional")
    return cluster


def test_each_step_begins_where_the_last_one_ended_and_the_last_ends_at_the_total():
    bridge = Bridge(
        "USD",
        10**13,
        3 * 10**13,
        10**12,
        5 * 10**12,
        14 * 10**12,
        0,
        2 * 10**12,
        0,
        credits=-(2 * 10**12),
        commitment=-(10**12),
        commitment_unused=10**12,
    )
    found = waterfall_of(bridge)
    assert [step.title for step in found.steps] == [title for name, title in BRIDGE if getattr(bridge, name)]
    assert sum(step.amount for step in found.steps) == found.total
    at_ = Decimal(0)
    scale = Decimal(100) / found.total
    for step in found.steps:
        left, right = sorted((at_, at_ + step.amount))
        assert abs(Decimal(step.x) - left * scale) <= Decimal("0.01")
        assert abs(Decimal(step.x) + Decimal(step.width) - right * scale) <= Decimal("0.02")
        at_ += step.amount
    assert (found.whole.x, found.whole.width) == ("0.00", "100.00")


def test_nothing_is_drawn_of_nothing():
    found = waterfall_of(Bridge("USD", 0, 0, 0, 0, 0, 0, 0, 0))
    assert (found.steps, found.whole.x, found.whole.width) == ((), "0.00", "0.00")


def test_the_pictures_are_those_of_the_reports(shared, as_):
    page = as_().get(PAGE).content.decode()
    report = sharing_report(SYSTEM, "acme", date(2026, 10, 1))
    (bridge,) = report.bridges
    assert BAR.findall(page) == [("rise", step.x, step.width) for step in waterfall_of(bridge).steps]
    assert len(BAR.findall(page)) > 1
    boxes = {name: Decimal(width) * Decimal(height) for _, _, width, height, name in BOX.findall(page)}
    whole = sum(one.total for one in report.tenants)
    assert boxes.keys() == {one.tenant for one in report.tenants}
    for one in report.tenants:
        assert abs(boxes[one.tenant] / 10_000 - Decimal(one.total) / whole) < Decimal("0.001")
    assert page.count("chart-posted") == 0
    weeks = re.findall(
        r"<td>(\d{4}-\d\d-\d\d)(?: <span[^>]*>so far</span>)?</td><td data-label=\"Cost of usage\" class=\"num\">([\d,.]+)",
        page,
    )
    assert len(weeks) == 13
    assert all(datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).weekday() == 0 for day, _ in weeks)
    last = datetime.strptime(weeks[-1][0], "%Y-%m-%d").replace(tzinfo=UTC)
    assert last.date() <= date(2026, 10, 31) < (last + timedelta(weeks=1)).date()
    cost = usage_report(SYSTEM, "acme", last - timedelta(weeks=12), last + timedelta(weeks=1)).total.cost
    assert sum(Decimal(amount.replace(",", "")) for _, amount in weeks) == round(cost, 2)


def test_a_team_sees_its_own_part_and_no_bridge(shared, as_):
    page = as_("viewer", "acme/one").get(PAGE).content.decode()
    assert not BAR.findall(page)
    assert [name for *_, name in BOX.findall(page)] == ["acme/one"]
    assert "acme/two" not in page
    assert page.count("so far") == 0
    assert "tenant=acme&amp;" not in page
    assert "see your own tenants" in page


def test_several_currencies_have_pictures_of_their_own(as_):
    make_tenant("acme/one")
    set_billing_currency(SYSTEM, "acme", at(1, month=9).date(), "USD")
    for name, currency in (("north", "USD"), ("east", "EUR")):
        cluster = priced_cluster(name, currency=currency)
        record_runs([make_run(cluster, "acme/one", started_at=at(3), until_at=at(3, 4))])
    page = as_().get(PAGE).content.decode()
    assert re.findall(r'id="tree-(\w+)"', page) == ["EUR", "USD"]
    assert re.findall(r'id="weeks-(\w+)"', page) == ["EUR", "USD"]


def test_without_anything_the_page_says_what_to_do(as_, client):
    assert "No charges in this month" in as_().get(PAGE).content.decode()
    client.force_login(make_user("nobody@example.org"))
    assert client.get("/usage/overview/").status_code == 200
    assert client.get(PAGE).status_code == 404
    assert client.get("/usage/overview/?month=2026-13").status_code == 422
