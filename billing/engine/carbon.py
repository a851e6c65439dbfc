"""Energy and emissions of metered use, in exact arithmetic: rated power or measured energy, PUE, grid intensity by hour.

The rates of an hour are constant, so what a run used until a time is one growing reading, as with costs: use is the reading at its
end minus the reading at its start, and the parts of a run add up exactly to the whole, wherever it is cut. Readings are
linear in units, so runs are added up at their edges before any rate is known.

Energy is in nanojoules: milliwatts × milliseconds × thousandths of PUE. Emissions are energy × milligrams a kWh.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from fractions import Fraction
from math import lcm
from operator import add
from typing import Literal, TypeAlias

HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
MILLISECONDS = 3_600_000
NANOJOULES_A_KWH = 3_600_000_000_000_000
MICROJOULES_A_MILLIWATT_HOUR = 3_600_000
ZERO = Fraction(0)
Part = Literal["gpu", "core", "gib"]
Basis = Literal["none", "estimated", "measured", "mixed"]
Amount: TypeAlias = int | Fraction
"""Whole numbers where they suffice: sums of fractions cost ten times as much."""
Rates: TypeAlias = tuple[int, int, int, int, int]
"""What one unit does in a millisecond: energy, emissions, energy in an hour without an intensity, time without a rating, and
embodied milligrams, over one denominator for all hours.
"""


@dataclass(frozen=True, slots=True)
class Rating:
    """The power of a part from an hour on; `embodied` in milligrams a millisecond, zero if it is not known."""

    since: datetime
    milliwatts: int
    embodied: Fraction = ZERO


@dataclass(frozen=True, slots=True)
class Site:
    """The grid and the PUE of a cluster from an hour on."""

    since: datetime
    region: str
    pue_thousandths: int


@dataclass(frozen=True, slots=True)
class Span:
    """A grid intensity in [start, until). `is_own` is of the cluster's organisation, which comes before those for all; then the
    shorter one, then the later `number`.
    """

    start: datetime
    until: datetime
    milligrams_per_kwh: int
    is_own: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """Units that begin (or, negative, end) in an hour; `moments` is the sum of units × milliseconds after its beginning."""

    hour: datetime
    units: Amount
    moments: Amount


@dataclass(frozen=True, slots=True)
class Footprint:
    """Exact sums: nanojoules, nanojoules × milligrams a kWh, milligrams, and milliseconds of GPUs and of cores without a rating.
    `dark` is the part of the energy in hours without an intensity.
    """

    estimated: Fraction = ZERO
    measured: Fraction = ZERO
    estimated_emissions: Fraction = ZERO
    measured_emissions: Fraction = ZERO
    dark: Fraction = ZERO
    embodied: Fraction = ZERO
    unrated_gpus: Fraction = ZERO
    unrated_cores: Fraction = ZERO

    def __add__(self, other: "Footprint") -> "Footprint":
        return Footprint(*map(add, self.values, other.values))

    @property
    def values(self) -> tuple[Fraction, ...]:
        """The sums in order."""
        return tuple(getattr(self, each.name) for each in fields(self))

    @property
    def basis(self) -> Basis:
        """What the energy is based on."""
        if not self.estimated and not self.measured:
            return "none"
        if not self.measured:
            return "estimated"
        return "mixed" if self.estimated else "measured"

    @property
    def kwh(self) -> Fraction:
        """All energy, in kWh."""
        return (self.estimated + self.measured) / NANOJOULES_A_KWH

    @property
    def grams(self) -> Fraction:
        """Emissions of the grid, in grams of CO2 equivalents."""
        return (self.estimated_emissions + self.measured_emissions) / (NANOJOULES_A_KWH * 1000)


def hour_of(at: datetime) -> datetime:
    """The beginning of its hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def edges_of(start: datetime, until: datetime, units: Amount) -> tuple[Edge, Edge]:
    """Units that are used in [start, until)."""
    first, last = hour_of(start), hour_of(until)
    return (
        Edge(first, units, units * ((start - first) // MILLISECOND)),
        Edge(last, -units, -units * ((until - last) // MILLISECOND)),
    )


def by_hour(spans: Collection[Span], start: datetime, count: int) -> list[int | None]:
    """The intensity that applies in each hour; None: none is known."""
    found: list[int | None] = [None] * count
    for span in sorted(spans, key=lambda one: (one.is_own, one.start - one.until, one.number)):
        first, last = max(0, (span.start - start) // HOUR), min(count, (span.until - start) // HOUR)
        if first < last:
            found[first:last] = [span.milligrams_per_kwh] * (last - first)
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster over time: sites by time, ratings by part (the own ones and those for all, by time), intensities by region."""

    sites: Sequence[Site] = ()
    ratings: Mapping[tuple[Part, str], tuple[Sequence[Rating], Sequence[Rating]]] = field(default_factory=dict)
    intensities: Mapping[str, Collection[Span]] = field(default_factory=dict)

    def rating_at(self, part: Part, model: str, hour: datetime) -> Rating | None:
        """The rating of a part in an hour; one of the organisation comes first."""
        own, general = self.ratings.get((part, model), ((), ()))
        return _latest(own, hour) or _latest(general, hour)


def _latest(versions: Sequence[Rating], hour: datetime) -> Rating | None:
    at = bisect_right(versions, hour, key=lambda one: one.since)
    return versions[at - 1] if at else None


class Hours:
    """The rates of a cluster in the hours of [start, until), and readings of them."""

    def __init__(self, place: Place, start: datetime, until: datetime) -> None:
        self._place, self._start = place, hour_of(start)
        self._count = max(0, -((self._start - until) // HOUR)) + 1
        self._sites = [self._site(number) for number in range(self._count)]
        known = {
            region: by_hour(place.intensities.get(region, ()), self._start, self._count)
            for region in {site.region for site in self._sites if site}
        }
        self._intensity = [known[site.region][number] if site else None for number, site in enumerate(self._sites)]
        self._rates: dict[tuple[Part, str], list[Rates]] = {}
        self._before: dict[tuple[Part, str], list[Rates]] = {}
        self._embodied_per: dict[tuple[Part, str], int] = {}

    def _site(self, number: int) -> Site | None:
        at = bisect_right(self._place.sites, self._start + number * HOUR, key=lambda one: one.since)
        return self._place.sites[at - 1] if at else None

    def site_at(self, hour: datetime) -> tuple[Site | None, int | None]:
        """The site, and the intensity of its grid, in an hour."""
        number = (hour - self._start) // HOUR
        return self._sites[number], self._intensity[number]

    def _prepare(self, part: Part, model: str) -> None:
        """Makes the rates of a part, and the readings at the beginning of each hour."""
        if (part, model) in self._rates:
            return
        ratings = [self._place.rating_at(part, model, self._start + n * HOUR) for n in range(self._count)]
        per = lcm(*{one.embodied.denominator for one in ratings if one})
        rates = [self._rate(one, number, per) for number, one in enumerate(ratings)]
        before: list[Rates] = [(0, 0, 0, 0, 0)]
        for energy, emissions, dark, unrated, embodied in rates:
            (a, b, c, d, e), ms = before[-1], MILLISECONDS
            before.append((a + ms * energy, b + ms * emissions, c + ms * dark, d + ms * unrated, e + ms * embodied))
        key = part, model
        self._rates[key], self._before[key], self._embodied_per[key] = rates, before, per

    def _rate(self, rating: Rating | None, number: int, per: int) -> Rates:
        if rating is None:
            return (0, 0, 0, 1, 0)
        site, embodied = self._sites[number], int(rating.embodied * per)
        if site is None:
            return (0, 0, 0, 1, embodied)
        energy, intensity = rating.milliwatts * site.pue_thousandths, self._intensity[number]
        return (energy, energy * (intensity or 0), 0 if intensity is not None else energy, 0, embodied)

    def used(self, part: Part, model: str, edges: Iterable[Edge]) -> list[Amount]:
        """What the units between the edges did, as sums in the order of Rates."""
        self._prepare(part, model)
        before, rates, per = self._before[part, model], self._rates[part, model], self._embodied_per[part, model]
        energy: Amount = 0
        emissions: Amount = 0
        dark: Amount = 0
        unrated: Amount = 0
        embodied: Amount = 0
        for edge in edges:
            number, units, moments = (edge.hour - self._start) // HOUR, edge.units, edge.moments
            was, rate = before[number], rates[number]
            energy -= units * was[0] + moments * rate[0]
            emissions -= units * was[1] + moments * rate[1]
            dark -= units * was[2] + moments * rate[2]
            unrated -= units * was[3] + moments * rate[3]
            embodied -= units * was[4] + moments * rate[4]
        return [energy, emissions, dark, unrated, embodied * Fraction(1, per)]

    def in_hour(self, part: Part, model: str, hour: datetime, unit_milliseconds: Amount) -> list[Amount]:
        """What units did in a part of one hour, but for their embodied emissions, which no measurement changes."""
        self._prepare(part, model)
        return [unit_milliseconds * rate for rate in self._rates[part, model][(hour - self._start) // HOUR][:4]] + [0]


def grams_an_hour(hours: Hours, part: Part, model: str, hour: datetime) -> Fraction | None:
    """What a unit in use emits in that hour; None if its rating, the site or the intensity of the grid is not known."""
    site, intensity = hours.site_at(hour)
    _, emitted, _, unrated, _ = hours.in_hour(part, model, hour, MILLISECONDS)
    known = site is not None and intensity is not None and not unrated
    return Fraction(emitted, NANOJOULES_A_KWH * 1000) if known else None


@dataclass(frozen=True, slots=True)
class MeasuredHour:
    """Measured energy of runs in one hour, in milliwatt-hours, and what they used of it: units × milliseconds by part."""

    hour: datetime
    milliwatt_hours: Fraction
    use: Mapping[Part, Amount]


@dataclass(slots=True)
class Used:
    """What runs of one cluster and GPU model used. `has_gpus`: they have GPUs, so that the GPU's rating may contain their cores.
    `scales` are the rated parts of a unit, where they are not one.
    """

    gpu_model: str
    has_gpus: bool
    edges: dict[Part, list[Edge]] = field(default_factory=dict)
    measured: list[MeasuredHour] = field(default_factory=list)
    scales: Mapping[Part, Fraction] = field(default_factory=dict)

    def times(self) -> Iterator[datetime]:
        """The hours that it touches."""
        yield from (edge.hour for edges in self.edges.values() for edge in edges)
        yield from (one.hour for one in self.measured)


def footprint(used: Used, hours: Hours) -> Footprint:
    """The energy and emissions: estimated, except in measured hours. An hour of a cluster without a site stays unrated, although
    it was measured, because its PUE is not known.
    """
    sums = {part: hours.used(part, _model(part, used), edges) for part, edges in used.edges.items()}
    measured, emitted, dark = ZERO, ZERO, ZERO
    for one in used.measured:
        site, intensity = hours.site_at(one.hour)
        if site is None:
            continue
        for part, unit_milliseconds in one.use.items():
            taken = hours.in_hour(part, _model(part, used), one.hour, unit_milliseconds)
            sums[part] = [a - b for a, b in zip(sums[part], taken, strict=True)]
        energy = one.milliwatt_hours * MICROJOULES_A_MILLIWATT_HOUR * site.pue_thousandths
        measured += energy
        emitted += energy * (intensity or 0)
        dark += ZERO if intensity is not None else energy
    scaled = {part: [used.scales.get(part, Fraction(1)) * each for each in its] for part, its in sums.items()}
    total = [sum((its[number] for its in scaled.values()), ZERO) for number in range(5)]
    return Footprint(
        total[0], measured, total[1], emitted, total[2] + dark, total[4],
        scaled["gpu"][3] if used.has_gpus and "gpu" in scaled else ZERO,
        scaled["core"][3] if not used.has_gpus and "core" in scaled else ZERO,
    )  # fmt: skip


def _model(part: Part, used: Used) -> str:
    return used.gpu_model if part == "gpu" else ""
