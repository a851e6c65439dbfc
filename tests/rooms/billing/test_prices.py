from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.models import Price
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies, price_book
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_cluster, make_flavor, make_run, make_user

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    return cluster


def put(amount, at=NOVEMBER, **fields):
    return create_price(SYSTEM, NewPrice("north", "h100", Decimal(amount), effective_from=at, **fields))


def timeline():
    rows = Price.objects.order_by("valid").values_list("unit_price", "valid")
    return [(float(amount), valid.lower, valid.upper) for amount, valid in rows]


def test_a_new_price_ends_the_one_before_it_where_it_begins(north):
    put("2")
    put("3", NOVEMBER + DAY)
    assert timeline() == [(2, NOVEMBER, NOVEMBER + DAY), (3, NOVEMBER + DAY, None)]


def test_a_new_price_replaces_what_was_announced_for_later(north):
    for amount, at in (("2", NOVEMBER), ("3", NOVEMBER + 2 * DAY), ("4", NOVEMBER + 3 * DAY)):
        put(amount, at)
    put("5", NOVEMBER + DAY)
    assert timeline() == [(2, NOVEMBER, NOVEMBER + DAY), (5, NOVEMBER + DAY, None)]


def test_a_price_may_be_corrected_until_it_is_used(north):
    put("200")
    put("2")
    assert timeline() == [(2, NOVEMBER, None)]
    assert AuditEntry.objects.filter(action="price.create").count() == 2


def test_a_price_cannot_reach_back_into_metered_time(north):
    put("2")
    record_runs([make_run(north)])
    metered_until = datetime(2026, 11, 10, 13, tzinfo=UTC)

    with pytest.raises(Conflict) as refused:
        put("3", metered_until - timedelta(milliseconds=1))
    assert refused.value.code == "price_already_used"
    put("3", metered_until)
    assert timeline() == [(2, NOVEMBER, metered_until), (3, metered_until, None)]
    assert discrepancies() == ()


def test_time_that_was_metered_without_a_price_stays_so(north):
    record_runs([make_run(north)])
    with pytest.raises(Conflict) as refused:
        put("3")
    assert refused.value.code == "price_already_used"


def test_the_price_book_has_what_is_in_force(north):
    put("2")
    put("3", NOVEMBER + DAY)
    south = make_cluster(name="south")
    make_flavor(south, "h100")

    assert price_book(NOVEMBER - DAY) == {}
    assert {key: view.unit_price for key, view in price_book(NOVEMBER).items()} == {(north.id, "h100"): Decimal(2)}
    assert price_book(NOVEMBER + DAY)[north.id, "h100"].unit_price == Decimal(3)


def test_an_unknown_flavor_cannot_be_priced(north):
    with pytest.raises(Invalid) as refused:
        create_price(SYSTEM, NewPrice("north", "h1000", Decimal(1)))
    assert [(error.field, error.code) for error in refused.value.errors] == [("flavor", "unknown_flavor")]


def test_a_flavor_that_left_the_cluster_keeps_its_price_book(north):
    put("2")
    north.flavors.all().delete()
    put("3", NOVEMBER + DAY)
    assert len(timeline()) == 2


def test_the_capacity_type_is_that_of_the_flavor(north):
    make_flavor(north, "h100-spot", capacity_type="spot")
    price = create_price(SYSTEM, NewPrice("north", "h100-spot", Decimal(1)))
    assert price.rate.capacity_type == "spot"
    with pytest.raises(Invalid) as refused:
        put("1", capacity_type="spot")
    assert refused.value.errors[0].code == "unknown_capacity_type"


def test_an_organisation_has_one_currency(north):
    put("2", currency="EUR")
    with pytest.raises(Invalid) as refused:
        put("2", NOVEMBER + DAY)
    assert refused.value.errors[0].code == "mixed_currencies"
    elsewhere = make_cluster("acme-labs", name="lab")
    make_flavor(elsewhere, "h100")
    assert create_price(SYSTEM, NewPrice("lab", "h100", Decimal(1))).currency == "USD"


def test_prices_are_set_by_those_who_manage_them_at_the_owner(north):
    teller, team_teller, stranger = make_user(), make_user(), make_user()
    bind(teller, "acme", "finance")
    bind(team_teller, "acme/research", "finance")
    wanted = NewPrice("north", "h100", Decimal(1), effective_from=NOVEMBER)

    with pytest.raises(NotAllowedHere):
        create_price(actor_for(team_teller), wanted)
    with pytest.raises(NotFound):
        create_price(actor_for(stranger), wanted)
    assert create_price(actor_for(teller), wanted).unit_price == 1
