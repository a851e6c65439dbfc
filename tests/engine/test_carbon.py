"""Energy and emissions against sums over single hours, and the laws of splitting."""

import itertools
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.carbon import (
    MILLISECOND,
    Footprint,
    Hours,
    MeasuredHour,
    Part,
    Place,
    Rating,
    Site,
    Span,
    Used,
    by_hour,
    edges_of,
    footprint,
)
from tests.laws import examples

START = datetime(2026, 10, 1, tzinfo=UTC)
END = START + timedelta(days=3)
KWH, GRAMS = 3_600_000 * 10**9, 3_600_000 * 10**12


def at(hours, milliseconds=0):
    return START + timedelta(hours=hours, milliseconds=milliseconds)


def place(sites=((0, "fr", 1200),), gpu=((0, 700_000),), intensities=((0, 72, 50_000),)):
    return Place(
        [Site(at(hour), region, pue) for hour, region, pue in sites],
        {("gpu", "H100"): ([Rating(at(hour), power) for hour, power in gpu], [])},
        {"fr": [Span(at(a), at(b), mg, number=number) for number, (a, b, mg) in enumerate(intensities)]},
    )


def used(*runs, measured=(), has_gpus=True):
    edges = {}
    for start, until, units in runs:
        for part, amount in units.items():
            edges.setdefault(part, []).extend(edges_of(start, until, Fraction(amount)))
    return Used("H100", has_gpus, edges, list(measured))


def found(runs, where, **more):
    return footprint(used(*runs, **more), Hours(where, START, END))


def test_an_h100_for_an_hour_in_france():
    one = found([(at(1, 500), at(2, 500), {"gpu": 1})], place())
    assert one.kwh == Fraction("0.84")  # 0.7 kW, and PUE 1.2
    assert one.grams == 42
    assert one.basis == "estimated"
    assert not any((one.measured, one.dark, one.unrated_gpus, one.unrated_cores))


def test_seven_sevenths_are_one_gpu_and_cores_and_memory_come_beside():
    parts: dict[tuple[Part, str], tuple[list[Rating], list[Rating]]] = {
        ("core", ""): ([], [Rating(at(0), 3_000)]),
        ("gib", ""): ([], [Rating(at(0), 400)]),
    }
    where = Place(place().sites, {**place().ratings, **parts}, place().intensities)
    whole = found([(at(0), at(5), {"gpu": 1, "core": 14, "gib": 70})], where)
    seventh = found([(at(0), at(5), {"gpu": Fraction(1, 7), "core": 2, "gib": 10})], where)
    assert sum([seventh] * 7, Footprint()) == whole
    assert whole.kwh == 5 * Fraction("1.2") * (Fraction("0.7") + 14 * Fraction("0.003") + 70 * Fraction("0.0004"))


def test_versions_apply_from_their_hour_on_and_the_organisations_own_comes_first():
    own, general = [Rating(at(2), 100_000)], [Rating(at(0), 700_000), Rating(at(1), 400_000), Rating(at(1), 300_000)]
    where = Place(place(sites=((0, "fr", 1000), (3, "fr", 2000))).sites, {("gpu", "H100"): (own, general)}, {})
    hourly = [found([(at(n), at(n + 1), {"gpu": 1})], where).kwh for n in range(4)]
    assert hourly == [Fraction(7, 10), Fraction(3, 10), Fraction(1, 10), Fraction(2, 10)]


def test_what_is_not_known_is_said_and_counts_as_nothing():
    run = [(at(0), at(4), {"gpu": 2, "core": 8})]
    no_rating = found(run, place(gpu=()))
    assert (no_rating.kwh, no_rating.unrated_gpus, no_rating.basis) == (0, 8 * 3_600_000, "none")
    assert no_rating.unrated_cores == 0, "the GPU's rating may contain its cores"
    no_site = found(run, place(sites=((1, "fr", 1000),)))
    assert (no_site.unrated_gpus, no_site.kwh) == (2 * 3_600_000, Fraction("4.2"))
    dark = found(run, place(intensities=((0, 1, 50_000), (3, 4, 0))))
    assert dark.dark == Fraction("3.36") * KWH
    assert dark.grams == 84, "an intensity of zero is known"
    assert dark.kwh == Fraction("6.72")
    guest = found([(at(0), at(4), {"gpu": 0, "core": 8})], place(), has_gpus=False)
    assert (guest.unrated_cores, guest.unrated_gpus) == (32 * 3_600_000, 0)


def test_embodied_emissions_are_spread_over_the_life_whatever_the_power_and_the_measurement():
    rating = Rating(at(0), 0, Fraction(150_000_000, 50_000 * 3_600_000))
    where = Place((), {("gpu", "H100"): ((), [rating])}, {})
    assert found([(at(0), at(10), {"gpu": 2})], where).embodied == 60_000  # 150 kg over 50,000 hours: 3 g an hour
    site = Place(place().sites, where.ratings, {})
    hour = MeasuredHour(at(0), Fraction(1), {"gpu": Fraction(2 * 3_600_000)})
    assert found([(at(0), at(10), {"gpu": 2})], site, measured=[hour]).embodied == 60_000


def test_measured_energy_replaces_the_estimate_of_its_hour_and_no_more():
    run = [(at(0, 1_800_000), at(3), {"gpu": 1})]
    half = MeasuredHour(at(0), Fraction(300_000), {"gpu": Fraction(1_800_000)})  # 0.3 kWh in half an hour
    one = found(run, place(intensities=((0, 1, 10_000), (1, 72, 50_000))), measured=[half])
    assert one.measured == Fraction("0.36") * KWH
    assert one.estimated == Fraction("1.68") * KWH
    assert one.measured_emissions == Fraction("3.6") * GRAMS
    assert one.estimated_emissions == 84 * GRAMS
    assert one.basis == "mixed"
    everything = [MeasuredHour(at(n), Fraction(9), {"gpu": Fraction(3_600_000)}) for n in (1, 2)]
    assert found(run, place(), measured=[half, *everything]).basis == "measured"


def test_a_measured_hour_needs_a_site_but_no_rating():
    hour = MeasuredHour(at(0), Fraction(1_000_000), {"gpu": Fraction(3_600_000)})
    run = [(at(0), at(1), {"gpu": 1})]
    no_site = found(run, place(sites=()), measured=[hour])
    assert (no_site.kwh, no_site.unrated_gpus) == (0, 3_600_000)
    no_rating = found(run, place(gpu=()), measured=[hour])
    assert (no_rating.kwh, no_rating.unrated_gpus) == (Fraction("1.2"), 0)
    in_the_dark = found(run, place(intensities=()), measured=[hour])
    assert (in_the_dark.dark, in_the_dark.grams) == (Fraction("1.2") * KWH, 0)


def test_the_shorter_intensity_applies_then_the_later_and_first_the_own():
    year, month = Span(at(-8000), at(760), 300, number=7), Span(at(0), at(30), 200, number=3)
    hour, corrected = Span(at(2), at(3), 100, number=2), Span(at(2), at(3), 90, number=9)
    own = Span(at(4), at(700), 7, is_own=True)
    assert by_hour([corrected, hour, own, month, year], START, 6) == [200, 200, 90, 200, 7, 7]
    assert by_hour([hour], START, 4) == [None, None, 100, None]
    assert by_hour([Span(at(50), at(60), 1), Span(at(-5), at(-1), 1)], START, 2) == [None, None]


MOMENTS = st.integers(0, 72 * 3_600_000 - 1).map(lambda ms: START + ms * MILLISECOND)
SPANS = st.tuples(st.integers(-10, 70), st.integers(1, 90), st.integers(0, 900_000)).map(
    lambda t: (t[0], t[0] + t[1], t[2])
)
VERSIONS = st.lists(st.integers(1, 70), max_size=2).map(lambda later: [-5, *sorted(later)])
PLACES = st.builds(
    lambda sites, gpu, spans, numbers: place(
        [(hour, "fr", 1000 + numbers[n]) for n, hour in enumerate(sites)],
        [(hour, 1 + numbers[n]) for n, hour in enumerate(gpu)],
        spans,
    ),
    VERSIONS,
    VERSIONS.map(lambda versions: versions[versions[-1] > 40 :]),
    st.lists(SPANS, max_size=5),
    st.lists(st.integers(0, 1000), min_size=3, max_size=3),
)
LENGTHS = st.integers(1, 30 * 3_600_000) | st.integers(1, 5_000)
RUNS = st.lists(
    st.tuples(MOMENTS, LENGTHS, st.fractions(Fraction(1, 7), 8, max_denominator=7)), min_size=1, max_size=4
).map(lambda runs: [(start, min(END, start + length * MILLISECOND), {"gpu": units}) for start, length, units in runs])


def by_single_hours(runs, where):
    """Independently: each hour of each run, with the versions that apply in it."""
    total = [Fraction(0)] * 4
    for start, until, units in runs:
        for number in range(72):
            inside = max(timedelta(), min(until, at(number + 1)) - max(start, at(number))) // MILLISECOND * units["gpu"]
            sites = [one for one in where.sites if one.since <= at(number)]
            ratings = [one for one in where.ratings["gpu", "H100"][0] if one.since <= at(number)]
            spans = [one for one in where.intensities["fr"] if one.start <= at(number) < one.until]
            if not sites or not ratings:
                total[3] += inside
                continue
            kwh = inside * ratings[-1].milliwatts * sites[-1].pue_thousandths
            total[0] += kwh
            best = min(spans, key=lambda one: (one.until - one.start, -one.number), default=None)
            total[1] += kwh * best.milligrams_per_kwh if best else 0
            total[2] += 0 if best else kwh
    return total


@given(RUNS, PLACES)
@examples(150)
@pytest.mark.law
def test_readings_are_sums_over_hours(runs, where):
    one = found(runs, where)
    assert [one.estimated, one.estimated_emissions, one.dark, one.unrated_gpus] == by_single_hours(runs, where)


@given(RUNS, PLACES, st.lists(MOMENTS, max_size=5))
@examples(150)
@pytest.mark.law
def test_runs_that_are_cut_anywhere_and_shared_by_anybody_add_up(runs, where, cuts):
    whole = found(runs, where)
    pieces = []
    for start, until, units in runs:
        inner = sorted({start, until, *(cut for cut in cuts if start < cut < until)})
        pieces += [(a, b, units) for a, b in itertools.pairwise(inner)]
    assert sum((found([piece], where) for piece in pieces), Footprint()) == whole
    thirds = [(a, b, {"gpu": units["gpu"] / 3}) for a, b, units in runs for _ in range(3)]
    assert found(thirds, where) == whole


def test_hours_reach_as_far_as_they_are_asked():
    hours = Hours(place(), at(3, 1), at(3, 2))
    assert footprint(used((at(3, 1), at(3, 2), {"gpu": 1})), hours).estimated == 700_000 * 1200
    assert footprint(used((at(3), at(4), {"gpu": 1})), hours).kwh == Fraction("0.84")
