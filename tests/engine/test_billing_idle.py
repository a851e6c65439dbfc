"""Laws and known numbers of idle capacity and shared cost: nothing is lost, whoever bears it."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.idle import (
    Balance,
    IdleSplit,
    Offered,
    PlatformSplit,
    Shared,
    Worth,
    balance,
    by_day,
    share_idle,
    share_platform,
    split,
    worth_of,
)
from billing.engine.ledger import SCALE, Entry, ShareOf, units
from billing.engine.rating import READINGS_AN_HOUR, Load, PriceSpan, rate
from billing.engine.shared_entries import (
    IDLE_SHARE,
    PLATFORM_SHARE,
    SharedMonth,
    missing_entries,
    name_of,
    wanted_entries,
)

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NORTH, ACME = UUID(int=1), UUID(int=2)
keys = st.tuples(st.text("ab/", max_size=4), st.text("12", max_size=2))
weights = st.dictionaries(keys, st.integers(0, 10**20), max_size=8)
amounts = st.integers(0, 10**24)


def price(amount, since=NOON - 24 * HOUR, until=None, **more):
    return PriceSpan(UUID(int=9), Decimal(amount), "USD", since, until, **more)


def gpus(count, start=NOON, hours=1, **more):
    return Offered(start, start + hours * HOUR, "gpu", count, 64_000, 512 * 1024, **more)


def who(*names):
    return [(name, "") for name in names]


# Laws


@given(amount=amounts, by=weights)
def test_a_split_keeps_the_sum_to_the_last_unit(amount, by):
    if not any(by.values()):
        with pytest.raises(ValueError, match="not all zero"):
            split(amount, by)
        return
    parts = split(amount, by)
    assert sum(parts.values()) == amount
    whole = sum(by.values())
    for key, weight in by.items():
        assert abs(parts.get(key, 0) * whole - amount * weight) < whole


@given(amount=amounts, by=weights.filter(lambda by: any(by.values())), data=st.data())
def test_a_split_does_not_depend_on_the_order_or_on_those_without_weight(amount, by, data):
    shuffled = dict(data.draw(st.permutations([*by.items(), (("zero", ""), 0)])))
    assert split(amount, shuffled) == split(amount, by)


@given(amount=amounts, by=weights.filter(lambda by: any(by.values())))
def test_who_has_the_greater_weight_bears_no_less(amount, by):
    parts = split(amount, by)
    ordered = sorted(by, key=lambda key: by[key])
    for one, other in itertools.pairwise(ordered):
        if by[one] < by[other]:
            assert parts.get(one, 0) <= parts.get(other, 0)


@given(idle=st.integers(-(10**15), 10**15), how=st.sampled_from(IdleSplit), charged=weights, unused=weights)
def test_idle_is_shared_whole(idle, how, charged, unused):
    shared = share_idle(idle, how, charged, unused)
    assert shared.amount == idle
    assert all(part > 0 for part in shared.parts.values())
    if how is IdleSplit.CENTRAL or idle <= 0 or not (any(charged.values()) or any(unused.values())):
        assert not shared.parts
    elif how is IdleSplit.PROPORTIONAL and any(charged.values()):
        assert shared.central == 0
    if how is IdleSplit.RESERVATIONS:
        for key, worth in unused.items():
            if sum(unused.values()) <= idle:
                assert shared.parts.get(key, 0) >= worth


@given(amount=amounts, how=st.sampled_from(PlatformSplit), charged=weights, fixed=weights)
def test_the_platform_is_shared_whole(amount, how, charged, fixed):
    shared = share_platform(amount, how, charged, fixed)
    assert shared.amount == amount
    bearers = fixed if how is PlatformSplit.FIXED else charged
    assert (shared.central == amount) == (not amount or not any(bearers.values()))
    if how is PlatformSplit.EVEN and shared.parts:
        users = sum(1 for paid in charged.values() if paid)
        assert {amount // users, amount // users + 1} >= {shared.parts.get(key, 0) for key in charged if charged[key]}


@given(
    whole=st.integers(0, 10**18), unavailable=st.integers(0, 10**18), charged=st.integers(0, 10**18),
    guests=st.integers(0, 10**6),
)  # fmt: skip
def test_workloads_idle_and_overhead_are_the_cost(whole, unavailable, charged, guests):
    worth = Worth(whole * READINGS_AN_HOUR, min(unavailable, whole) * READINGS_AN_HOUR)
    its = balance(worth, charged, guests)
    assert its.charged + its.overhead + its.idle == its.cost == whole + guests
    assert its.overhead >= 0
    assert its.is_negative == (charged > its.cost)
    more = balance(worth, charged + 1, guests)
    assert more.idle + more.overhead == its.idle + its.overhead - 1


@given(
    runs=st.lists(st.tuples(st.integers(0, 23), st.integers(1, 6), st.integers(1, 3_600_000)), max_size=6),
    amount=st.integers(1, 9_999_999), change=st.integers(0, 24),
)  # fmt: skip
def test_full_nodes_are_never_negative_by_rounding(runs, amount, change):
    """Each run fills a node of its own, for exactly as long as the node is there; the price changes meanwhile."""
    midnight = NOON.replace(hour=0)
    turn = midnight + change * HOUR
    prices = [
        price(Decimal(amount).scaleb(-6), midnight - 9 * HOUR, turn), price(Decimal(amount + 7).scaleb(-6), turn)
    ]  # fmt: skip
    charged, worth = 0, Worth()
    for hour, count, milliseconds in runs:
        start = midnight + hour * HOUR
        until = start + timedelta(milliseconds=milliseconds)
        load = Load("gpu", count, 1000, start, 1024)
        charged += sum(units(piece.cost) for piece in rate(load, start, until, prices))
        worth = worth.plus(worth_of([Offered(start, until, "gpu", count, 1, 1)], prices).get("USD", Worth()))
    its = balance(worth, charged)
    assert 0 <= its.idle <= 2 * len(runs)


@given(start=st.integers(0, 40), hours=st.integers(1, 80), count=st.integers(1, 9))
def test_cuts_at_midnight_change_no_worth(start, hours, count):
    offer = gpus(count, NOON + start * HOUR, hours)
    pieces = by_day([offer])
    assert all(
        each.start.date() == day and each.until <= each.start + 24 * HOUR for day, cut in pieces.items() for each in cut
    )
    parts = [worth_of(cut, [price("1.5")])["USD"].whole for cut in pieces.values()]
    assert (
        sum(parts)
        == worth_of([offer], [price("1.5")])["USD"].whole
        == count * hours * units(Decimal("1.5")) * READINGS_AN_HOUR
    )


# Known numbers


def test_a_node_of_35_with_base_prices_30_30_10_is_15_15_5():
    parts = split(35 * SCALE, dict(zip(who("gpu", "cpu", "ram"), (30, 30, 10), strict=True)))
    assert [parts[key] / SCALE for key in who("gpu", "cpu", "ram")] == [15, 15, 5]


def test_a_gpu_hour_of_a_ten_dollar_node_is_about_half_a_dollar_by_nine_to_one():
    by = {("gpu", ""): 8 * 90, ("cpu", ""): 64 * 9, ("ram", ""): 488}
    gpu = split(10 * SCALE, by)["gpu", ""]
    assert round(gpu / SCALE / 8, 3) == 0.504


def test_100_are_shared_40_35_25_and_100_in_three_are_33_34_33_33_33_33():
    assert list(split(10_000, dict(zip(who("a", "b", "c"), (40, 35, 25), strict=True))).values()) == [4000, 3500, 2500]
    assert list(split(10_000, dict.fromkeys(who("a", "b", "c"), 1)).values()) == [3334, 3333, 3333]


def test_seven_slices_of_2_10_are_30_cents_each():
    assert set(split(210, dict.fromkeys(who(*"abcdefg"), 1)).values()) == {30}


def test_a_node_with_two_gpu_models_costs_both():
    worth = worth_of([gpus(4)], [price("2.5")])["USD"].plus(worth_of([gpus(2)], [price("1")])["USD"])
    assert balance(worth, 0).cost == 12 * SCALE


def test_jobs_that_pay_more_than_the_pool_cost_leave_negative_idle():
    its = balance(worth_of([gpus(1)], [price("2.5")])["USD"], 3 * SCALE)
    assert (its.cost, its.overhead, its.idle, its.is_negative) == (5 * SCALE // 2, 0, -SCALE // 2, True)
    assert share_idle(its.idle, IdleSplit.PROPORTIONAL, {("a", ""): 1}).parts == {}


def test_nodes_that_take_no_jobs_are_overhead_as_far_as_no_job_paid_for_them():
    worth = worth_of([gpus(3), gpus(1, is_available=False)], [price("1")])["USD"]
    assert [(each.overhead / SCALE, each.idle / SCALE) for each in (balance(worth, n * SCALE) for n in (0, 2, 4))] == [
        (1, 3), (1, 1), (0, 0),
    ]  # fmt: skip


def test_cores_and_memory_count_where_they_have_a_price_and_cpu_only_nodes_by_core():
    priced = price("1", cpu_price=Decimal("0.01"), memory_price=Decimal("0.001"))
    assert balance(worth_of([gpus(8)], [priced])["USD"], 0).cost == units(
        Decimal(8) + Decimal("0.64") + Decimal("0.512")
    )
    cores = Offered(NOON, NOON + HOUR, "core", 0, 64_000, 512 * 1024)
    assert balance(worth_of([cores], [price("0.05")])["USD"], 0).cost == units(Decimal("3.2"))
    assert worth_of([cores], []) == {}


def test_what_guests_pay_at_another_price_is_no_part_of_what_gpus_cost():
    its = balance(worth_of([gpus(1)], [price("2.5")])["USD"], units(Decimal("2.6")), guests=units(Decimal("0.1")))
    assert (its.cost, its.idle) == (units(Decimal("2.6")), 0)


def test_owners_of_reserved_nodes_bear_first_what_they_left_unused():
    charged = {("a", ""): 30, ("b", ""): 10}
    shared = share_idle(100, IdleSplit.RESERVATIONS, charged, {("a", ""): 60, ("c", ""): 0})
    assert shared.parts == {("a", ""): 90, ("b", ""): 10}
    assert share_idle(50, IdleSplit.RESERVATIONS, charged, {("a", ""): 60, ("c", ""): 40}).parts == {
        ("a", ""): 30,
        ("c", ""): 20,
    }
    assert share_idle(50, IdleSplit.RESERVATIONS, {}, {("c", ""): 20}).central == 30


def test_time_that_was_not_observed_is_counted_apart_and_so_is_that_of_nodes_that_took_no_jobs():
    offers = [
        gpus(1),
        gpus(2, is_assumed=True),
        gpus(4, is_available=False),
        gpus(8, is_available=False, is_assumed=True),
    ]
    worth = worth_of(offers, [price("1")])["USD"]
    an_hour = SCALE * READINGS_AN_HOUR
    assert worth == Worth(15 * an_hour, 12 * an_hour, 10 * an_hour)
    its = balance(worth, SCALE)
    assert (its.cost, its.charged, its.overhead, its.idle, its.assumed) == tuple(n * SCALE for n in (15, 1, 12, 2, 10))
    assert worth.plus(Worth(1, 2, 3)) == Worth(15 * an_hour + 1, 12 * an_hour + 2, 10 * an_hour + 3)


def test_a_price_is_worth_something_only_for_the_time_that_it_shares_with_an_offer():
    before, after = price("1", NOON - HOUR, NOON), price("1", NOON + HOUR)
    assert worth_of([gpus(1)], [before, after]) == {}
    half = NOON + HOUR / 2
    first, second = price("2", NOON - HOUR, half), PriceSpan(UUID(int=8), Decimal(4), "EUR", half)
    found = worth_of([gpus(1)], [before, first, second, after])
    assert {currency: one.whole for currency, one in found.items()} == {
        "USD": SCALE * READINGS_AN_HOUR, "EUR": 2 * SCALE * READINGS_AN_HOUR,
    }  # fmt: skip


@pytest.mark.parametrize(("amount", "by"), [(-1, {"a": 1}), (1, {"a": 2, "b": -1}), (1, {"a": 0}), (1, {"a": -1})])
def test_nothing_is_split_by_weights_that_are_negative_or_all_zero(amount, by):
    with pytest.raises(ValueError, match="not negative and not all zero"):
        split(amount, {(name, ""): weight for name, weight in by.items()})


def test_what_remains_of_a_split_goes_to_the_largest_remainders_and_of_equal_ones_to_the_lesser_key():
    assert split(10, {("b", "1"): 1, ("a", "2"): 1, ("a", "1"): 1}) == {("a", "1"): 4, ("a", "2"): 3, ("b", "1"): 3}
    assert split(7, {("a", ""): 10, ("b", ""): 25}) == {("a", ""): 2, ("b", ""): 5}
    assert split(5, {("a", ""): 24, ("b", ""): 26}) == {("a", ""): 2, ("b", ""): 3}
    assert split(0, {("a", ""): 1}) == {("a", ""): 0}


def test_who_got_money_back_bears_no_share():
    charged = {("a", ""): 30, ("b", ""): -10, ("c", ""): 10}
    assert share_idle(8, IdleSplit.PROPORTIONAL, charged).parts == {("a", ""): 6, ("c", ""): 2}
    assert share_platform(8, PlatformSplit.PROPORTIONAL, charged).parts == {("a", ""): 6, ("c", ""): 2}
    assert share_platform(8, PlatformSplit.EVEN, charged).parts == {("a", ""): 4, ("c", ""): 4}
    assert share_platform(8, PlatformSplit.FIXED, charged, {("d", ""): 1, ("e", ""): 0}).parts == {("d", ""): 8}
    assert share_platform(8, PlatformSplit.FIXED, charged).central == 8
    nobody = {("a", ""): 0, ("b", ""): -1}
    assert share_idle(8, IdleSplit.PROPORTIONAL, nobody) == Shared(8)
    assert share_platform(8, PlatformSplit.EVEN, nobody) == Shared(8)
    assert share_platform(1, PlatformSplit.EVEN, charged).parts == {("a", ""): 1}


# Entries


MONTH = SharedMonth(ACME, datetime(2026, 10, 31, tzinfo=UTC).date(), "policy 1")


def posted(entries):
    return [entry for entry in entries if entry.kind != "reversal"]


def month_of(charged, how, overhead=0):
    its = balance(Worth(100 * READINGS_AN_HOUR, overhead * READINGS_AN_HOUR), sum(charged.values()))
    shared = share_idle(its.idle, how, charged)
    return wanted_entries(
        MONTH, [(NORTH, "h100", "USD", its, shared)], share_platform(7, PlatformSplit.EVEN, charged), "USD"
    )


def test_the_entry_of_a_share_says_whose_it_is():
    entries = month_of({("acme/a", "1"): 3, ("globex", "2"): 1}, IdleSplit.PROPORTIONAL)
    shares = [entry.day for entry in entries if entry.day.tenant_path]
    assert shares == [
        ShareOf(NORTH, IDLE_SHARE, "acme/a"),
        ShareOf(NORTH, IDLE_SHARE, "globex"),
        ShareOf(None, PLATFORM_SHARE, "acme/a"),
        ShareOf(None, PLATFORM_SHARE, "globex"),
    ]


@given(
    charged=st.dictionaries(keys, st.integers(1, 9), max_size=5),
    how=st.sampled_from(IdleSplit),
    overhead=st.integers(0, 40),
)
def test_entries_add_up_to_zero_and_the_pools_account_is_the_rest_of_its_cost(charged, how, overhead):
    entries = month_of(charged, how, overhead)
    assert all(sum(line.amount for line in entry.lines) == 0 for entry in entries)
    pool = [line.amount for entry in entries for line in entry.lines if line.account.startswith("cluster_pool")]
    assert units(-sum(pool)) == 100 - sum(charged.values())
    assert len({entry.key for entry in entries}) == len(entries)


def test_the_same_month_is_posted_once_and_another_one_takes_the_first_back():
    first = month_of({("acme/a", "1"): 40}, IdleSplit.PROPORTIONAL)
    fresh = missing_entries(first, [], {})
    assert [entry.key for entry in fresh] == [f"{entry.key}/1" for entry in first]
    counts = {name_of(entry): 1 for entry in fresh}
    assert missing_entries(first, fresh, counts) == ()
    other = missing_entries(month_of({("acme/a", "1"): 50}, IdleSplit.PROPORTIONAL), fresh, counts)
    assert [entry.kind for entry in other] == ["reversal", "reversal", "idle", "idle"]
    assert all(isinstance(entry, Entry) and entry.key.endswith(("/1", "/2")) for entry in other)
    assert [entry.key for entry in posted(other)] == [f"{name_of(entry)}/2" for entry in posted(other)]
    assert missing_entries((), fresh, counts)[0].kind == "reversal"


def test_entries_have_these_names_accounts_and_lines():
    currencies = [
        ("h100", "USD", balance(Worth(9 * READINGS_AN_HOUR, 2 * READINGS_AN_HOUR), 0), Shared(3, {("a", "1"): 4})),
        ("h100", "EUR", balance(Worth(5 * READINGS_AN_HOUR), 0), Shared(5)),
        ("l4", "USD", balance(Worth(6 * READINGS_AN_HOUR), 6), Shared(0, {("a", "1"): 1, ("b", "2"): 0})),
    ]
    platform = Shared(0, {("b", "2"): 6, ("a", "1"): 1})
    found = wanted_entries(MONTH, [(NORTH, *one) for one in currencies], platform, "USD")
    whose = {name: sha256(name.encode()).hexdigest()[:12] for name in "ab"}
    begin = f"2026-10/{ACME}"
    assert [
        (entry.key, entry.kind, [(line.account, line.currency, units(line.amount)) for line in entry.lines])
        for entry in found
    ] == [
        (f"idle/{begin}/{NORTH}/h100", "idle", [
            ("idle", "EUR", 5), ("idle", "USD", 7), ("overhead", "USD", 2),
            (f"cluster_pool:{NORTH}", "EUR", -5), (f"cluster_pool:{NORTH}", "USD", -9),
        ]),
        (f"idle/{begin}/{NORTH}/share/1/{whose['a']}", "idle", [("tenant_expense:1", "USD", 5), ("idle", "USD", -5)]),
        (f"platform/{begin}/1/{whose['a']}", "platform", [("tenant_expense:1", "USD", 1), ("platform", "USD", -1)]),
        (f"platform/{begin}/2/{whose['b']}", "platform", [("tenant_expense:2", "USD", 6), ("platform", "USD", -6)]),
    ]  # fmt: skip
    assert {(entry.organisation_id, entry.charge_day, entry.reason) for entry in found} == {
        (ACME, MONTH.last_day, "policy 1")
    }


def test_a_pool_whose_idle_and_overhead_cancel_out_moves_them_and_credits_nothing():
    its = Balance(0, 0, 4, -4)
    [entry] = wanted_entries(MONTH, [(NORTH, "h100", "USD", its, Shared(-4))], Shared(0), "USD")
    assert [(line.account, units(line.amount)) for line in entry.lines] == [("idle", -4), ("overhead", 4)]


def test_an_entry_that_differs_in_amount_reason_or_day_is_taken_back_and_another_is_not():
    fresh = missing_entries(month_of({("a", "1"): 40}, IdleSplit.CENTRAL), [], {})
    posted_as = {name_of(entry): 1 for entry in fresh}
    same = [replace(entry, key=name_of(entry), lines=entry.lines[::-1]) for entry in fresh]
    assert missing_entries(same, fresh, posted_as) == ()
    for change in ({"reason": "policy 2"}, {"charge_day": MONTH.last_day - timedelta(days=1)}, {"kind": "platform"}):
        changed = [replace(same[0], **change), *same[1:]]
        found = missing_entries(changed, fresh, posted_as)
        assert [(one.kind, one.key) for one in found] == [
            ("reversal", f"reversal/{fresh[0].key}"), (changed[0].kind, f"{same[0].key}/2"),
        ]  # fmt: skip
