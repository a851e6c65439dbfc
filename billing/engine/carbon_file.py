"""Reads the numbers that energy and emissions are computed from: CSV files whose header says what they contain.

`region,from,until,g_per_kwh`: grid intensities. `part,gpu_model,from,watts,embodied_kg,life_hours`: rated power.
`cluster,from,region,pue`: sites of clusters. `cluster,pod,hour,watt_hours`: measured energy.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

HOUR = timedelta(hours=1)
MOST_CHARACTERS = 20_000_000
"""Of a file: a year of fifty regions by hour has fewer."""
SOURCE_LENGTH, LICENCE_LENGTH, REGION_LENGTH = 200, 120, 63
MOST_INTENSITY = 10_000_000
"""Milligrams for a kWh: coal emits about a tenth."""
MOST_WATTS = 100_000
MOST_EMBODIED_GRAMS = 10**9
MOST_LIFE_HOURS = 438_000
"""50 years."""
MOST_PUE = 10
MOST_MEASURED = 10**9
"""Milliwatt-hours of a pod in an hour: a megawatt."""
YEARS = range(2000, 2200)
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:00(:00)?Z)?")
NAME = re.compile(r"[!-~]([ -~]{0,61}[!-~])?")
POD = re.compile(r"[!-~]{1,72}")
MILLI = 3
"""Decimal places that a number may have, and those of what it is stored in."""


class NotCarbonFile(ValueError):
    """The text is no such file. The argument says where, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Intensity:
    """What a kWh of a region's grid emits in [start, until), in milligrams of CO2 equivalents."""

    region: str
    start: datetime
    until: datetime
    milligrams_per_kwh: int

    @property
    def key(self) -> tuple[object, ...]:
        """What it is the number of."""
        return self.region, self.start, self.until


@dataclass(frozen=True, slots=True)
class RatedPart:
    """The power of a part from an hour on, and what its production emitted. `gpu_model` is empty for cores and memory."""

    part: str
    gpu_model: str
    since: datetime
    milliwatts: int
    embodied_grams: int | None
    life_hours: int | None

    @property
    def key(self) -> tuple[object, ...]:
        """What it is the power of."""
        return self.part, self.gpu_model, self.since


@dataclass(frozen=True, slots=True)
class SiteOf:
    """The grid and the power usage effectiveness of a cluster, by name, from an hour on."""

    cluster: str
    since: datetime
    region: str
    pue_thousandths: int

    @property
    def key(self) -> tuple[object, ...]:
        """What it is the site of."""
        return self.cluster, self.since


@dataclass(frozen=True, slots=True)
class Measured:
    """What a pod, by its uid, drew in an hour."""

    cluster: str
    pod: str
    hour: datetime
    milliwatt_hours: int

    @property
    def key(self) -> tuple[object, ...]:
        """What it is the energy of."""
        return self.cluster, self.pod, self.hour


Row: TypeAlias = Intensity | RatedPart | SiteOf | Measured
Cells: TypeAlias = Mapping[str, str]


def read_carbon_file(text: str) -> tuple[Row, ...]:
    """The rows of a file, all of one kind, in its order. Raises NotCarbonFile."""
    if len(text) > MOST_CHARACTERS:
        raise NotCarbonFile(f"a file has at most {MOST_CHARACTERS} characters")
    rows = _rows(text.removeprefix("\ufeff"))
    head = tuple(cell.strip() for cell in next(rows, (0, []))[1])
    read = READERS.get(head)
    if read is None:
        known = "; ".join(",".join(columns) for columns in READERS)
        raise NotCarbonFile(f"line 1: the columns are one of: {known}")
    found, seen = [], set()
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(head):
            raise NotCarbonFile(f"line {line}: it has {len(cells)} columns, not {len(head)}")
        try:
            row = read(dict(zip(head, (cell.strip() for cell in cells), strict=True)))
        except NotCarbonFile as error:
            raise NotCarbonFile(f"line {line}: {error}") from None
        if row.key in seen:
            raise NotCarbonFile(f"line {line}: the same is there twice")
        seen.add(row.key)
        found.append(row)
    return tuple(found)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise NotCarbonFile(f"line {reader.line_num}: {error}") from error


def _intensity(cells: Cells) -> Intensity:
    start = _hour(cells, "from")
    until = _hour(cells, "until") if cells["until"] else start + HOUR
    if until <= start:
        raise NotCarbonFile("`until` is not after `from`")
    return Intensity(_text(cells, "region", NAME), start, until, _number(cells, "g_per_kwh", MOST_INTENSITY))


def _rated(cells: Cells) -> RatedPart:
    part = cells["part"]
    if part not in {"gpu", "core", "gib"} or bool(cells["gpu_model"]) != (part == "gpu"):
        raise NotCarbonFile("`part` is gpu with a `gpu_model`, or core or gib without one")
    embodied, life = cells["embodied_kg"], cells["life_hours"]
    if bool(embodied) != bool(life):
        raise NotCarbonFile("give `embodied_kg` and `life_hours` both or neither")
    hours = _number(cells, "life_hours", MOST_LIFE_HOURS, places=0) if life else None
    if hours == 0:
        raise NotCarbonFile("`life_hours` is at least 1")
    return RatedPart(
        part, _text(cells, "gpu_model", NAME) if part == "gpu" else "", _hour(cells, "from"),
        _number(cells, "watts", MOST_WATTS * 1000), _number(cells, "embodied_kg", MOST_EMBODIED_GRAMS) if embodied else None, hours,
    )  # fmt: skip


def _site(cells: Cells) -> SiteOf:
    pue = _number(cells, "pue", MOST_PUE * 1000)
    if pue < 1000:  # noqa: PLR2004 - thousandths
        raise NotCarbonFile("`pue` is at least 1")
    return SiteOf(_text(cells, "cluster", NAME), _hour(cells, "from"), _text(cells, "region", NAME), pue)


def _measured(cells: Cells) -> Measured:
    return Measured(
        _text(cells, "cluster", NAME), _text(cells, "pod", POD), _hour(cells, "hour"),
        _number(cells, "watt_hours", MOST_MEASURED),
    )  # fmt: skip


def _text(cells: Cells, name: str, form: re.Pattern[str]) -> str:
    if not form.fullmatch(cells[name]):
        raise NotCarbonFile(f"`{name}` is missing, too long, or has characters beyond ASCII")
    return cells[name]


def _number(cells: Cells, name: str, most: int, places: int = MILLI) -> int:
    """A number in thousandths, or whole with `places=0`."""
    text = cells[name]
    if not re.fullmatch(rf"[0-9]{{1,12}}(\.[0-9]{{1,{places}}})?" if places else "[0-9]{1,12}", text):
        raise NotCarbonFile(f"`{name}` is {text[:20]!r}, not a number with up to {places} decimals")
    found = int(Decimal(text).scaleb(places))
    if found > most:
        raise NotCarbonFile(f"`{name}` is {text[:20]}, which is beyond {Decimal(most).scaleb(-places).normalize():f}")
    return found


def _hour(cells: Cells, name: str) -> datetime:
    text = cells[name]
    try:
        at = datetime.fromisoformat(text) if TIME.fullmatch(text) else None
    except ValueError:
        at = None
    if at is None or at.year not in YEARS:
        raise NotCarbonFile(f"`{name}` is {text[:30]!r}, not a day or a whole hour such as 2026-10-01T13:00Z")
    return at.replace(tzinfo=UTC)


READERS: Final[Mapping[tuple[str, ...], Callable[[Cells], Row]]] = {
    ("region", "from", "until", "g_per_kwh"): _intensity,
    ("part", "gpu_model", "from", "watts", "embodied_kg", "life_hours"): _rated,
    ("cluster", "from", "region", "pue"): _site,
    ("cluster", "pod", "hour", "watt_hours"): _measured,
}
