import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from billing.engine.corrected import Correction, corrected_spans, correction_id
from billing.engine.months import midnight, next_month
from billing.engine.rating import Load, PriceSpan, rate, whole_milliseconds
from billing.engine.runs import ObservedRun

NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def gpus(units=1, *, cpu=0, since=NOON):
    return Load("gpu", units, cpu, since)


def price(amount, start=datetime(2026, 1, 1, tzinfo=UTC), until=None, number=1):
    return PriceSpan(UUID(int=number), Decimal(amount), "USD", start, until)


def test_what_is_not_reported_of_a_run_is_empty():
    """Its device counts as a whole GPU, and none of its work was lost."""
    ids = [UUID(int=number) for number in range(5)]
    run = ObservedRun(ids[0], "u", ids[1], ids[2], ids[3], ids[4], "h100", "spot", 1, 2, NOON, NOON + HOUR, False)
    assert (run.is_estimated, run.workload_name, run.user_name, run.memory_mib) == (False, "", "", 0)
    assert (run.gpu_model, run.sharing, run.redone_from) == ("", "", None)
    assert run.key == (ids[0], "u")
    assert Load("gpu", 1, 2, NOON).memory_mib == 0


def test_a_gpu_hour_costs_its_unit_price():
    (piece,) = rate(gpus(8, cpu=16_000), NOON, NOON + HOUR, [price("2.5")])
    assert piece.cost == Decimal(20)
    assert (piece.gpu_milliseconds, piece.cpu_millicore_milliseconds) == (8 * 3_600_000, 16_000 * 3_600_000)


def test_memory_counts_for_as_long_as_its_pod_runs_whether_or_not_it_has_a_price():
    load = Load("gpu", 1, 500, NOON, 1536)
    for book in ([], [price("2.5")]):
        (piece,) = rate(load, NOON, NOON + HOUR / 2, book)
        assert piece.memory_mib_milliseconds == 1536 * 1_800_000


def test_a_cpu_only_flavor_costs_by_the_core():
    (piece,) = rate(Load("core", 0, 1500, NOON), NOON, NOON + 2 * HOUR, [price("0.04")])
    assert piece.cost == Decimal("0.12")


def test_what_is_priced_by_the_core_pays_nothing_for_devices():
    (piece,) = rate(Load("core", 3, 1000, NOON), NOON, NOON + HOUR, [price("0.04")])
    assert piece.cost == Decimal("0.04")


def test_a_guest_has_no_price_where_only_gpus_have_one():
    (piece,) = rate(gpus(0, cpu=4000), NOON, NOON + HOUR, [price("2.5")])
    assert (piece.cost, piece.cpu_millicore_milliseconds, piece.price_id, piece.currency) == (
        0,
        4000 * 3_600_000,
        None,
        "",
    )


def test_a_guest_pays_the_price_of_cpu_only_nodes_until_its_own_flavor_asks_for_cores():
    change = NOON + HOUR / 4
    own = [price("2.5", until=change), beside("2.5", cpu="0.08", start=change, number=2)]
    stand_in = price("0.04", number=3)
    pieces = rate(gpus(0, cpu=4000), NOON, NOON + HOUR, own, [stand_in])
    assert [(piece.price_id.int, piece.cost) for piece in pieces] == [(3, Decimal("0.04")), (2, Decimal("0.24"))]


def test_a_pod_pays_for_gpus_cores_and_memory_where_each_has_a_price():
    load = Load("gpu", 2, 8000, NOON, memory_mib=64 * 1024)
    (piece,) = rate(load, NOON, NOON + HOUR, [beside("2.5", cpu="0.03", memory="0.004")])
    assert piece.cost == 5 + Decimal("0.24") + Decimal("0.256")
    (piece,) = rate(Load("core", 0, 8000, NOON, 64 * 1024), NOON, NOON + HOUR, [beside("0.03", memory="0.004")])
    assert piece.cost == Decimal("0.24") + Decimal("0.256")


def test_only_guests_pay_the_price_of_other_nodes():
    (piece,) = rate(gpus(1, cpu=4000), NOON, NOON + HOUR, [], [price("0.04")])
    assert (piece.price_id, piece.cost) == (None, 0)


def test_time_without_a_price_is_kept_unpriced():
    starts_later = price("3.6", start=NOON + timedelta(minutes=30))
    unpriced, priced = rate(gpus(), NOON, NOON + HOUR, [starts_later])
    assert (unpriced.price_id, unpriced.cost, unpriced.currency) == (None, 0, "")
    assert unpriced.gpu_milliseconds == priced.gpu_milliseconds == 1_800_000
    assert priced.cost == Decimal("1.8")


def test_a_price_change_cuts_the_run_and_leaves_the_past_alone():
    change = NOON + timedelta(minutes=15)
    old, new = price("1", until=change), price("4", start=change, number=2)
    pieces = rate(gpus(), NOON, NOON + HOUR, [new, old])
    assert [(piece.price_id, piece.cost) for piece in pieces] == [(old.id, Decimal("0.25")), (new.id, Decimal(3))]


def test_a_run_over_month_end_and_leap_day_is_cut_at_each_utc_midnight():
    start = datetime(2028, 2, 28, 23, 59, 59, 500_000, tzinfo=UTC)
    until = datetime(2028, 3, 1, 0, 0, 0, 1000, tzinfo=UTC)
    pieces = rate(gpus(since=start), start, until, [price("2.4")])
    assert [piece.start for piece in pieces] == [
        start,
        datetime(2028, 2, 29, tzinfo=UTC),
        datetime(2028, 3, 1, tzinfo=UTC),
    ]
    assert [piece.gpu_milliseconds for piece in pieces] == [500, 86_400_000, 1]
    assert pieces[1].cost == Decimal("57.6")


def test_midnight_is_that_of_utc_whatever_zone_the_instants_are_in():
    zone = datetime.fromisoformat("2026-11-10T20:00:00-05:00")
    pieces = rate(gpus(since=zone), zone, zone + 23 * HOUR, [])
    assert [piece.until for piece in pieces] == [datetime(2026, 11, 12, tzinfo=UTC)]


def test_seven_slices_at_a_seventh_of_a_price_lose_less_than_a_billionth():
    slices = [rate(gpus(), NOON, NOON + HOUR, [price("0.3")])[0].cost for _ in range(7)]
    assert sum(slices) == Decimal("2.1")


def beside(amount, cpu=None, memory=None, start=datetime(2026, 1, 1, tzinfo=UTC), until=None, number=1):
    cpu_price, memory_price = (None if text is None else Decimal(text) for text in (cpu, memory))
    return PriceSpan(UUID(int=number), Decimal(amount), "USD", start, until, cpu_price, memory_price)


instants = st.integers(0, 3 * 86_400_000).map(lambda ms: NOON + timedelta(milliseconds=ms))
amounts = st.decimals(0, 1000, places=6)
loads = st.builds(
    lambda unit, number, memory: Load(
        "core" if unit == "core" else "gpu", number if unit == "gpu" else 0, number * 1000, NOON, memory
    ),
    st.sampled_from(["gpu", "core", "guest"]),
    st.integers(1, 64),
    st.integers(0, 2**20),
)


some_instants = st.sets(instants, max_size=4)
amounts_or_none = st.none() | amounts


@st.composite
def price_books(draw):
    changes = sorted(draw(some_instants))
    bounds = [*changes, None]
    book = [
        beside(draw(amounts), draw(amounts_or_none), draw(amounts_or_none), start, until, number)
        for number, (start, until) in enumerate(zip(changes, bounds[1:], strict=True), start=1)
    ]
    return [span for span in book if draw(st.booleans())]


@given(loads, price_books(), price_books(), st.sets(instants, min_size=2, max_size=12))
def test_parts_add_up_to_the_whole_for_any_cuts(load, book, stand_ins, cuts):
    ordered = sorted(cuts)
    whole = rate(load, ordered[0], ordered[-1], book, stand_ins)
    parts = [piece for a, b in itertools.pairwise(ordered) for piece in rate(load, a, b, book, stand_ins)]
    for quantity in ("cost", "gpu_milliseconds", "cpu_millicore_milliseconds", "memory_mib_milliseconds"):
        assert sum(getattr(piece, quantity) for piece in parts) == sum(getattr(piece, quantity) for piece in whole)


@given(loads, price_books(), st.tuples(instants, instants).map(sorted))
def test_pieces_leave_no_gap_and_never_cross_a_midnight_or_a_price(load, book, ends):
    start, until = ends
    pieces = rate(load, start, until, book)
    if start == until:
        assert pieces == ()
        return
    assert (pieces[0].start, pieces[-1].until) == (start, until)
    assert all(a.until == b.start for a, b in itertools.pairwise(pieces))
    for piece in pieces:
        assert piece.start < piece.until <= piece.start.replace(hour=0, minute=0, second=0, microsecond=0) + 24 * HOUR
        covering = [
            p for p in book if p.valid_from < piece.until and (p.valid_until is None or piece.start < p.valid_until)
        ]
        asking = [p for p in covering if not load.is_guest or p.cpu_price is not None or p.memory_price is not None]
        assert [p.id for p in asking] == ([piece.price_id] if piece.price_id else [])


@given(loads, st.tuples(amounts, amounts, amounts), st.tuples(instants, instants).map(sorted))
def test_the_cost_is_the_sum_of_prices_times_quantities_to_the_twelfth_place(load, asked, ends):
    start, until = ends
    unit, cpu, memory = asked
    for piece in rate(load, start, until, [beside(unit, cpu, memory)]):
        hours = Fraction((piece.until - piece.start) // timedelta(milliseconds=1), 3_600_000)
        by_core = unit if load.unit == "core" else cpu
        an_hour = Fraction(unit) * load.gpu_units + Fraction(by_core) * load.cpu_millicores / 1000
        exact = (an_hour + Fraction(memory) * load.memory_mib / 1024) * hours
        assert abs(Fraction(piece.cost) - exact) < Fraction(1, 10**12)


def test_a_month_ends_where_the_next_one_begins():
    year = [date(2026, month, 1) for month in range(1, 13)]
    assert [next_month(month) for month in year] == [*year[1:], date(2027, 1, 1)]
    assert midnight(year[1]) == datetime(2026, 2, 1, tzinfo=UTC)


def test_times_are_cut_to_milliseconds():
    assert whole_milliseconds(NOON.replace(microsecond=123_999)) == NOON.replace(microsecond=123_000)
    assert whole_milliseconds(NOON.replace(microsecond=999)) == NOON


def corrected(*corrections, until=None, counted_from=None):
    """A price of 1 from noon, as corrected: (from, until, price, counted from) in hours after noon."""

    def hours(at):
        return None if at is None else (at - NOON) / HOUR

    own = PriceSpan(UUID(int=9), Decimal(1), "USD", NOON, until and NOON + until * HOUR, counted_from=counted_from)
    given = [
        Correction(number, price(amount, NOON + start * HOUR, NOON + end * HOUR))
        for number, amount, start, end in corrections
    ]
    return [
        (hours(span.valid_from), hours(span.valid_until), int(span.unit_price), hours(span.counted_from))
        for span in corrected_spans([own], given)
    ]


def test_a_correction_takes_its_span_and_the_rest_keeps_its_price_and_its_readings():
    assert corrected((1, 5, 2, 3)) == [(0, 2, 1, 0), (2, 3, 5, None), (3, None, 1, 0)]
    assert corrected((1, 5, 2, 3), until=8) == [(0, 2, 1, 0), (2, 3, 5, None), (3, 8, 1, 0)]
    # From its beginning, to its end, all of it, and beside it.
    assert corrected((1, 5, 0, 3), until=8) == [(0, 3, 5, None), (3, 8, 1, 0)]
    assert corrected((1, 5, 3, 8), until=8) == [(0, 3, 1, 0), (3, 8, 5, None)]
    assert corrected((1, 5, -1, 9), until=8) == [(-1, 9, 5, None)]
    assert corrected((1, 5, 9, 10), until=8) == [(0, 8, 1, 0), (9, 10, 5, None)]
    assert corrected((1, 5, -2, -1), until=8) == [(-2, -1, 5, None), (0, 8, 1, 0)]
    # What was cut before still counts from where it did.
    assert corrected((1, 5, 2, 3), counted_from=NOON - HOUR) == [(0, 2, 1, -1), (2, 3, 5, None), (3, None, 1, -1)]


def test_the_later_of_two_corrections_applies_whichever_comes_first():
    both = [(2, 7, 3, 5), (1, 5, 2, 4)]
    expected = [(0, 2, 1, 0), (2, 3, 5, 2), (3, 5, 7, None), (5, None, 1, 0)]
    assert corrected(*both) == corrected(*reversed(both)) == expected
    assert correction_id(7) != correction_id(8)
