"""Price book files: what a plan shows, what apply does and refuses, and what export writes."""

from datetime import timedelta
from decimal import Decimal

import pytest

from billing.engine.months import midnight, month_before, next_month
from billing.engine.own_costs import read_own_costs
from billing.engine.rating import whole_milliseconds
from billing.models import LedgerPeriod, Meter, Price, PriceCorrection
from billing.operations import create_price, posting, record_runs
from billing.operations.corrections import NewCorrection, preview_correction
from billing.operations.price_file import apply_prices, plan_prices
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from billing.queries.price_file import price_file
from foundation.clock import database_now
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bind, make_budget, make_cluster, make_flavor, make_run, make_user
from tests.own_costs import TEXTS

from .invoicing import closed
from .ledgers import expense, settle_pending_checks
from .price_files import HEAD, counts, line, refusals, shown, timeline

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def months():
    """The beginnings of the month before last, of the last one, and of this one."""
    this = database_now().date().replace(day=1)
    last = month_before(this)
    return midnight(month_before(last)), midnight(last), midnight(this)


@pytest.fixture
def north(months):
    """A cluster whose flavors h100 and a100 cost 2 since the month before last."""
    cluster = make_cluster(name="north")
    for flavor in ("h100", "a100"):
        make_flavor(cluster, flavor)
        create_price(SYSTEM, NewPrice("north", flavor, Decimal(2), effective_from=months[0]))
    return cluster


def second_time_nothing(text, **options):
    before = counts()
    assert apply_prices(SYSTEM, text, **options).changes == ()
    assert counts() == before


@pytest.mark.usefixtures("north")
def test_what_is_exported_changes_nothing(months):
    later = database_now() + 40 * DAY
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(3), effective_from=later, cpu_price=Decimal("0.01")))
    text = price_file(SYSTEM)
    assert text.count("flavor: h100") == 2
    assert plan_prices(SYSTEM, text, prune=True).changes == ()
    second_time_nothing(text, prune=True)


@pytest.mark.usefixtures("north")
def test_a_plan_writes_nothing_and_apply_makes_what_it_showed(months):
    later = midnight(next_month(database_now().date()))
    text = HEAD + line(months[0]) + line(later, "3", until=later + 5 * DAY)
    before = counts()
    plan = plan_prices(SYSTEM, text)
    assert counts() == before
    assert shown(plan) == [("create", "h100", later)]
    assert [str(one) for one in plan.kept] == ["north a100 on_demand"]
    [one] = plan.changes
    assert (one.mark.line, one.corrected_until, one.refusal) == (5, None, None)

    assert apply_prices(SYSTEM, text, expected=plan.digest).changes == plan.changes
    assert timeline() == [(2, months[0], later), (3, later, later + 5 * DAY)]
    assert timeline("a100") == [(2, months[0], None)]
    told = AuditEntry.objects.get(action="prices.apply").detail
    assert (told["plan"], told["changes"]) == (plan.digest, 1)
    second_time_nothing(text)


@pytest.mark.usefixtures("north")
def test_prices_that_the_file_does_not_have_stay_or_end_but_are_not_deleted(months):
    later = database_now() + 40 * DAY
    for flavor in ("h100", "a100"):
        create_price(SYSTEM, NewPrice("north", flavor, Decimal(9), effective_from=later))
    text = HEAD + line(months[0])
    assert plan_prices(SYSTEM, text).changes == ()

    plan = plan_prices(SYSTEM, text, prune=True)
    assert {(one.change.action, one.rate.flavor) for one in plan.changes} == {
        ("withdraw", "h100"), ("change", "h100"), ("end", "a100"), ("withdraw", "a100"),
    }  # fmt: skip
    before = database_now()
    apply_prices(SYSTEM, text, expected=plan.digest, prune=True)
    [(_, _, none), (amount, _, still)] = timeline()
    assert (none, amount, still) == (timeline()[1][1], 2, None), "announced again, because a price never grows"
    [(_, begun, ended)] = timeline("a100")
    assert begun == months[0]
    assert before - HOUR < ended <= database_now()
    assert AuditEntry.objects.filter(action="price.end").count() > 0
    second_time_nothing(text, prune=True)
    exported = price_file(SYSTEM)
    assert f"until: '{instant(ended)}'" in exported
    second_time_nothing(exported, prune=True)


def test_metered_time_of_an_open_month_is_corrected_and_the_rest_gets_the_price(north, months):
    start = months[1] + 2 * DAY
    run = make_run(north, started_at=start, until_at=start + 4 * HOUR)
    record_runs([run])
    posting.post_days()
    settle_pending_checks()
    assert expense() == 8
    text = HEAD.replace("prices:", "reason: contract 7\nprices:") + line(months[0]) + line(start + HOUR, "5")

    plan = plan_prices(SYSTEM, text)
    assert shown(plan) == [("create", "h100", start + HOUR)]
    assert plan.changes[0].corrected_until == start + 4 * HOUR
    assert [(one.tenant_path, one.old, one.new) for one in plan.effects] == [("acme", 8, 17)]
    apply_prices(SYSTEM, text, expected=plan.digest)

    assert timeline() == [(2, months[0], start + 4 * HOUR), (5, start + 4 * HOUR, None)]
    [made] = PriceCorrection.objects.all()
    assert (made.span.lower, made.span.upper, made.reason) == (start + HOUR, start + 4 * HOUR, "contract 7")
    posting.post_days()
    settle_pending_checks()
    assert expense() == 17
    assert discrepancies() == ()
    second_time_nothing(text)
    second_time_nothing(price_file(SYSTEM))


def test_a_correction_in_the_middle_leaves_what_follows(north, months):
    start = months[1] + 2 * DAY
    record_runs([make_run(north, started_at=start, until_at=start + 4 * HOUR)])
    text = HEAD + line(start, "5", until=start + HOUR) + line(start + HOUR)
    apply_prices(SYSTEM, text)
    assert timeline() == [(2, months[0], None)], "only a correction"
    assert [one.new - one.old for one in plan_prices(SYSTEM, HEAD + line(start, "2")).effects] == [-3]
    second_time_nothing(text)


def test_closed_months_are_never_touched_and_all_or_nothing_is_applied(north, months):
    start = months[1] + 2 * DAY
    record_runs([make_run(north, started_at=start, until_at=start + 4 * HOUR)])
    closed(months[1].month)
    assert LedgerPeriod.objects.get().state == "closed"
    checksum = LedgerPeriod.objects.get().checksum
    later = database_now() + 40 * DAY
    for begins in (months[1], start, months[2] - timedelta(milliseconds=1)):
        text = HEAD + line(later, "3", "a100") + line(begins, "5")
        plan = plan_prices(SYSTEM, text)
        assert refusals(plan) == {"h100": "month_closed"}
        before = counts()
        with pytest.raises(Conflict) as refused:
            apply_prices(SYSTEM, text, expected=plan.digest)
        assert refused.value.code == "plan_refused"
        [error] = refused.value.errors
        assert error.detail.startswith("line 5, column 5: ")
        assert counts() == before
    apply_prices(SYSTEM, HEAD + line(months[2], "5"))
    assert timeline() == [(2, months[0], months[2]), (5, months[2], None)]
    assert LedgerPeriod.objects.get().checksum == checksum


def test_apply_is_bound_to_the_prices_that_its_plan_has_seen(north, months):
    later = database_now() + 40 * DAY
    text = HEAD + line(later, "3")
    plan = plan_prices(SYSTEM, text)
    create_price(SYSTEM, NewPrice("north", "a100", Decimal(7), effective_from=later))
    assert plan_prices(SYSTEM, text).digest == plan.digest, "prices of another flavor"
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(7), effective_from=later + DAY))
    for expected in (plan.digest, "none"):
        before = counts()
        with pytest.raises(Conflict) as refused:
            apply_prices(SYSTEM, text, expected=expected)
        assert refused.value.code == "prices_changed"
        assert counts() == before
    apply_prices(SYSTEM, text, expected=plan_prices(SYSTEM, text).digest)
    assert [amount for amount, *_ in timeline()] == [2, 3, 7]


@pytest.mark.usefixtures("north")
def test_another_price_of_the_flavor_refuses_the_plan_though_its_changes_are_the_same():
    later = database_now() + 40 * DAY
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(7), effective_from=later + DAY))
    text = HEAD + line(later, "3")
    plan = plan_prices(SYSTEM, text)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(8), effective_from=later + DAY))
    assert plan_prices(SYSTEM, text).changes == plan.changes
    with pytest.raises(Conflict) as refused:
        apply_prices(SYSTEM, text, expected=plan.digest)
    assert refused.value.code == "prices_changed"


@pytest.mark.usefixtures("north")
def test_a_price_for_a_time_leaves_the_one_around_it_with_its_costs(months):
    costs = read_own_costs("USD", TEXTS)
    begins = whole_milliseconds(database_now() + DAY)
    around = create_price(SYSTEM, NewPrice.from_own_costs("north", "h100", costs, effective_from=begins))
    amount = f"{around.unit_price.normalize():f}"
    text = HEAD + line(begins + DAY, "3") + line(begins + 2 * DAY, amount)
    apply_prices(SYSTEM, text)
    found = [
        (row.unit_price, row.valid.lower, row.own_costs)
        for row in Price.objects.filter(rate__flavor="h100").order_by("valid")
    ]
    assert found[1:] == [
        (around.unit_price, begins, around.own_costs),
        (3, begins + DAY, None),
        (around.unit_price, begins + 2 * DAY, around.own_costs),
    ]
    second_time_nothing(text)


def test_a_correction_since_the_plan_refuses_it_too(north, months):
    start = months[1] + 2 * DAY
    record_runs([make_run(north, started_at=start, until_at=start + 4 * HOUR)])
    text = HEAD + line(start, "5")
    digest = plan_prices(SYSTEM, text).digest
    apply_prices(SYSTEM, HEAD + line(start + HOUR, "4"))
    with pytest.raises(Conflict) as refused:
        apply_prices(SYSTEM, text, expected=digest)
    assert refused.value.code == "prices_changed"


def test_the_preview_is_what_a_correction_of_last_month_would_do(north, months):
    begins = months[1] + 3 * DAY
    record_runs([
        make_run(north, "acme/one", started_at=begins, until_at=begins + 3 * HOUR),
        make_run(north, "acme/two", started_at=months[1] - HOUR, until_at=months[1] + HOUR, flavor="a100"),
    ])  # fmt: skip
    later = database_now() + 40 * DAY
    plan = plan_prices(SYSTEM, HEAD + line(later, "9") + line(later + DAY, "3") + line(later, "4", "a100"))
    told = [(one.tenant_path, one.old, one.new) for one in plan.effects]
    assert told == [("acme/one", 6, 9), ("acme/two", 2, 4)]
    of_one = preview_correction(
        SYSTEM,
        NewCorrection(
            Price.objects.filter(rate__flavor="h100").first().id, Decimal(3), "USD", months[1], months[2], "try"
        ),
    )
    assert [(one.tenant_path, one.old, one.new) for one in of_one] == told[:1]
    assert plan.month == months[1].date()


def test_the_preview_gives_up_on_too_much_usage(north, months, monkeypatch):
    monkeypatch.setattr("billing.queries.corrections.MOST_SEGMENTS", 0)
    begins = months[1] + 3 * DAY
    record_runs([make_run(north, started_at=begins, until_at=begins + 3 * HOUR)])
    plan = plan_prices(SYSTEM, HEAD + line(database_now() + 40 * DAY, "9"))
    assert (plan.effects, len(plan.changes)) == (None, 1)


@pytest.mark.usefixtures("north")
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"flavor": "none"}, "unknown_flavor"),
        ({"capacity_type": "spot"}, "unknown_capacity_type"),
        ({"currency": "EUR"}, "mixed_currencies"),
        ({"currency": "XXQ"}, "unknown_currency"),
        ({"interruptions_per_hour": "0.1"}, "not_spot"),
    ],
)
def test_what_a_price_is_refused_for_a_file_is_too(more, code):
    later = database_now() + 40 * DAY
    text = HEAD + line(later, "3", "a100") + line(later, "4", **more)
    plan = plan_prices(SYSTEM, text)
    assert list(refusals(plan).values()) == [code]
    before = counts()
    with pytest.raises(Conflict, match="Nothing is applied"):
        apply_prices(SYSTEM, text)
    assert counts() == before


def test_a_price_cannot_end_before_what_was_metered(north, months):
    record_runs([make_run(north, started_at=months[1], until_at=months[1] + 4 * HOUR)])
    text = HEAD + line(months[0], until=months[1] + HOUR)
    assert refusals(plan_prices(SYSTEM, text)) == {"h100": "price_already_used"}
    apply_prices(SYSTEM, HEAD + line(months[0], until=months[1] + 4 * HOUR))
    assert timeline() == [(2, months[0], months[1] + 4 * HOUR)]
    assert Meter.objects.count() == 1


def test_time_without_a_price_gets_one(months):
    make_flavor(cluster := make_cluster(name="north"), "h100")
    start = months[1] + 2 * DAY
    record_runs([make_run(cluster, started_at=start, until_at=start + 4 * HOUR)])
    posting.post_days()
    text = HEAD + line(start, "5")
    assert [(one.old, one.new) for one in plan_prices(SYSTEM, text).effects] == [(0, 20)]
    apply_prices(SYSTEM, text)
    posting.post_days()
    settle_pending_checks()
    assert (expense(), discrepancies()) == (20, ())
    second_time_nothing(text)


@pytest.mark.usefixtures("north")
def test_rights_are_those_of_prices(months):
    later = database_now() + 40 * DAY
    text = HEAD + line(later, "3")
    users = {role: make_user(f"{role}@acme.example") for role in ("viewer", "manager", "finance", "admin")}
    for role, user in users.items():
        bind(user, "acme", role)
    for role in ("viewer", "manager"):
        for ask in (plan_prices, apply_prices):
            with pytest.raises(NotAllowedHere):
                ask(actor_for(users[role]), text)
    assert price_file(actor_for(users["viewer"])) == price_file(SYSTEM)
    assert plan_prices(actor_for(users["admin"]), text).changes
    apply_prices(actor_for(users["finance"]), text)
    assert AuditEntry.objects.get(action="prices.apply").actor_id == users["finance"].id

    bind(other := make_user("eve@other.example"), "other", "admin")
    eve = actor_for(other)
    for ask in (plan_prices, apply_prices):
        with pytest.raises(Invalid) as refused:
            ask(eve, text)
        [error] = refused.value.errors
        assert (error.field, error.code) == ("prices[0].cluster", "unknown_cluster")
        assert error.detail.startswith("line 4, column 5: ")
    assert price_file(eve).endswith("prices: []\n")
    with pytest.raises(NotFound):
        price_file(eve, "north")


@pytest.mark.usefixtures("north")
def test_a_name_of_two_clusters_needs_its_owner(months):
    make_flavor(make_cluster("other", name="north"), "h100")
    later = database_now() + 40 * DAY
    with pytest.raises(Invalid):
        plan_prices(SYSTEM, HEAD + line(later, "3"))
    with pytest.raises(Invalid) as refused:
        plan_prices(SYSTEM, HEAD + line(later, "3", owner="nobody"))
    assert refused.value.errors[0].code == "unknown_cluster"
    text = HEAD + line(later, "3", owner="acme") + line(later, "4", owner="other")
    assert [one.rate.owner for one in apply_prices(SYSTEM, text).changes] == ["acme", "other"]
    exported = price_file(SYSTEM)
    assert "owner: other" in exported
    second_time_nothing(exported, prune=True)


@pytest.mark.usefixtures("north")
def test_one_rate_under_two_names_is_refused():
    later = database_now() + 40 * DAY
    with pytest.raises(Invalid) as refused:
        plan_prices(SYSTEM, HEAD + line(later, "3") + line(later, "4", owner="acme"))
    assert (refused.value.errors[0].field, refused.value.errors[0].code) == ("prices[1].owner", "given_twice")


@pytest.mark.usefixtures("north")
def test_a_budget_that_cannot_count_a_price_refuses_the_file():
    make_budget("acme", "100")
    plan = plan_prices(SYSTEM, HEAD + line(database_now() + DAY, "3", currency="EUR"))
    assert refusals(plan) == {"h100": "mixed_currencies"}


@pytest.mark.usefixtures("north")
def test_a_file_makes_a_limited_number_of_changes(monkeypatch):
    monkeypatch.setattr("billing.operations.price_file.MOST_CHANGES", 1)
    later = database_now() + DAY
    apply_prices(SYSTEM, HEAD + line(later, "3"))
    with pytest.raises(Conflict) as refused:
        plan_prices(SYSTEM, HEAD + line(later, "4") + line(later + DAY, "5"))
    assert refused.value.code == "too_many_changes"


@pytest.mark.usefixtures("north")
def test_own_costs_stay_with_prices_that_a_file_leaves(months):
    costs = read_own_costs("USD", TEXTS)
    priced = create_price(SYSTEM, NewPrice.from_own_costs("north", "a100", costs, effective_from=database_now() + DAY))
    text = price_file(SYSTEM)
    assert text.startswith("# A price that came from own costs is here as its amount")
    second_time_nothing(text, prune=True)
    assert Price.objects.get(id=priced.id).own_costs
