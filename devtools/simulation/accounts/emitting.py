"""Accountants who import what energy and emissions are computed from: grid intensities, rated power, sites of clusters, and measured
energy, each from a plan that the other one may have overtaken. What was imported is there, once, and the trail says so.
"""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from billing.models import Meter
from billing.operations.carbon import KEY_COLUMNS, Kind, Origin, apply_carbon, plan_carbon
from clusters.models import Flavor
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS
from tenancy.queries import SYSTEM, Actor

from .finance import Doing

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "emitted"
DOINGS = 5
"""How much each accountant does of it, on the next day and a month later."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EMITTING = ("validation_failed", "carbon_changed", "carbon_differs", "not_found", "permission_denied")
WHAT = ("intensities", "intensities", "ratings", "sites", "measured", "measured", "wrong")
HOW = ("imports", "imports", "plans to import", "imports as planned", "imports as planned")
REGIONS = ("FR", "DE")
WRONG = (
    "",
    "region,power\nFR,1\n",
    "cluster,from,region,pue\n",
    "cluster,from,region,pue\nnone-such,2026-06-01,FR,1.2\n",
    "cluster,pod,hour,watt_hours\neast,none-such,2026-06-01T12:00Z,5\n",
    "region,from,until,g_per_kwh\nFR,2026-06-02,2026-06-01,50\n",
    "region,from,until,g_per_kwh\nFR,2026-06-01,,50\nFR,2026-06-01,,51\n",
)
"""Files that must be refused."""
ORIGINS = (*[Origin("published by the grid", "CC-BY-4.0")] * 6, Origin("published by the grid"), Origin(" "))
"""Of these, one is none, and one has no licence, which intensities need."""


class Emit:
    """What one accountant does with such files. `imported` gets the rows that are known to be there."""

    def __init__(self, actor: Actor, world: "World") -> None:
        self._actor = actor
        self._is_drawn = KIND in world.faults.rates
        self._chance = random.Random(f"{world.seed}/emit/{actor.name}")
        self._first = world.begins_at.replace(hour=0, minute=0, second=0, microsecond=0)
        self._imported = world.imported

    def added_to(self, doings: list[Doing]) -> list[Doing]:
        """The things to do, with some of these among them."""
        for _ in range(DOINGS if self._is_drawn else 0):
            doings.insert(self._chance.randrange(len(doings) + 1), self._any())
        return doings

    def _any(self) -> Doing:
        how, what = self._chance.choice(HOW), self._chance.choice(WHAT)
        chance = random.Random(self._chance.random())
        return (f"{how}: {what}", lambda: self._import(how, what, chance), EMITTING)

    def _import(self, how: str, what: str, chance: random.Random) -> None:
        """Some for all organisations, without a plan, by one that does not count any more, or with other numbers than before."""
        actor, path = (SYSTEM, "") if chance.random() < 0.2 else (self._actor, "acme")
        text, origin, expected = TEXTS[what](self, chance), chance.choice(ORIGINS), ""
        if how != "imports":
            plan = plan_carbon(actor, path, text)
            expected = plan.digest if chance.random() < 0.9 else "another"
        if how != "plans to import":
            done = apply_carbon(actor, path, text, origin, expected=expected, corrects=chance.random() < 0.6)
            self._imported.update((done.kind, done.organisation, *one.row.key, *one.number) for one in done.changes)

    def _wrong(self, chance: random.Random) -> str:
        return chance.choice(WRONG)

    def _intensities(self, chance: random.Random) -> str:
        lines = ["region,from,until,g_per_kwh"]
        for region in chance.sample(REGIONS, chance.choice((1, 2))):
            start = self._first + chance.choice((-DAY, timedelta(0), 12 * HOUR))
            until = chance.choice(("", f"{start + DAY:%Y-%m-%d}T00:00Z", f"{start + 40 * DAY:%Y-%m-%d}T00:00Z"))
            lines.append(f"{region},{start:%Y-%m-%dT%H:00Z},{until},{chance.choice(('50', '61.5'))}")
        return _file(lines)

    def _ratings(self, chance: random.Random) -> str:
        models = Flavor.objects.exclude(gpu_model="").order_by("gpu_model").values_list("gpu_model", flat=True)
        parts = [*((f"gpu,{model}", ",150,50000") for model in models.distinct()), ("core,", ",,"), ("gib,", ",,")]
        watts = chance.choice((3, 4))
        some = [parts[at] for at in sorted(chance.sample(range(len(parts)), chance.choice((1, 2))))]
        since = f"{self._first:%Y-%m-%d}"
        return _file(["part,gpu_model,from,watts,embodied_kg,life_hours",
                      *(f"{part},{since},{watts}{life}" for part, life in some)])  # fmt: skip

    def _sites(self, chance: random.Random) -> str:
        names = sorted(chance.sample(CLUSTERS, chance.choice((1, 2))))
        pue, since = chance.choice(("1.2", "1.3")), self._first - chance.choice((0, 30)) * DAY
        return _file(["cluster,from,region,pue",
                      *(f"{name},{since:%Y-%m-%d},{chance.choice(REGIONS)},{pue}" for name in names)])  # fmt: skip

    def _measured(self, chance: random.Random) -> str:
        """Of one or two pods, in the hours in which they began to run, mostly; else in one in which they did not run."""
        meters = Meter.objects.filter(tenant_path__startswith="acme").order_by("id")
        known = list(meters.values_list("cluster__name", "source_uid", "metered_from"))
        lines = ["cluster,pod,hour,watt_hours"]
        for cluster, pod, at in chance.sample(known, min(len(known), chance.choice((1, 2)))):
            hour = at + chance.choice((0, 0, 0, 0, 5)) * HOUR
            lines.append(f"{cluster},{pod},{hour:%Y-%m-%dT%H:00Z},{chance.choice((10, 11))}")
        return _file(lines)


TEXTS: Mapping[str, Callable[[Emit, random.Random], str]] = {
    "intensities": Emit._intensities,  # noqa: SLF001 - likewise
    "ratings": Emit._ratings,  # noqa: SLF001 - likewise
    "sites": Emit._sites,  # noqa: SLF001 - likewise
    "measured": Emit._measured,  # noqa: SLF001 - likewise
    "wrong": Emit._wrong,  # noqa: SLF001 - likewise
}


def _file(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


@judging
def promise_16_emissions_are_counted_from_what_was_imported(world: "World") -> list[str]:
    """Each row of an import that was acknowledged is there; none says again what applied already; the trail counts all of them; and
    what is measured is of an hour in which the pod was metered.
    """
    if not world.are_books_kept or KIND not in world.faults.rates:
        return []
    found, stored, said = list[str](), set[tuple[Any, ...]](), dict(world.watch.rows(SAID))
    for kind, statement in STORED.items():
        rows = [tuple(row) for row in world.watch.rows(statement)]
        found += [f"the {kind} say {row} again" for row in _repeated(rows, 1 + KEY_COLUMNS[kind])]
        if len(rows) != said.get(kind, 0):
            found.append(f"there are {len(rows)} {kind}, and {said.get(kind, 0)} by the trail")
        stored |= {(kind, *row) for row in rows}
    found += [f"{row} was imported, and is not there" for row in sorted(world.imported - stored, key=str)]
    return found + [f"energy of {pod} was measured at {hour}" for pod, hour in world.watch.rows(UNMETERED)]


def _repeated(rows: list[tuple[Any, ...]], size: int) -> list[tuple[Any, ...]]:
    """The rows that say of their key, which has this size, what the one before said of it."""
    last, found = dict[tuple[Any, ...], tuple[Any, ...]](), list[tuple[Any, ...]]()
    for row in rows:
        if last.get(row[:size]) == row:
            found.append(row)
        last[row[:size]] = row
    return found


SAID = """
SELECT detail ->> 'kind', sum((detail ->> 'added')::int + (detail ->> 'corrected')::int)
  FROM tenancy_auditentry WHERE action = 'carbon.import' GROUP BY 1
"""
STORED: Mapping[Kind, str] = {
    "intensities": """
SELECT coalesce(organisation.path, ''), row.region, row.valid_from, row.valid_until, row.milligrams_per_kwh
  FROM billing_gridintensity AS row LEFT JOIN tenancy_tenant AS organisation ON organisation.id = row.organisation_id ORDER BY row.id
""",
    "ratings": """
SELECT coalesce(organisation.path, ''), row.part, row.gpu_model, row.since, row.milliwatts, row.embodied_grams, row.life_hours
  FROM billing_powerrating AS row LEFT JOIN tenancy_tenant AS organisation ON organisation.id = row.organisation_id ORDER BY row.id
""",
    "sites": """
SELECT 'acme', cluster.name, row.since, row.region, row.pue_thousandths
  FROM billing_carbonsite AS row JOIN clusters_cluster AS cluster ON cluster.id = row.cluster_id ORDER BY row.id
""",
    "measured": """
SELECT 'acme', cluster.name, meter.source_uid, row.hour, row.milliwatt_hours
  FROM billing_measuredenergy AS row JOIN billing_meter AS meter ON meter.id = row.meter_id
  JOIN clusters_cluster AS cluster ON cluster.id = meter.cluster_id ORDER BY row.id
""",
}
"""The organisation, what a row is of, and what it says of that, in the order in which they were imported."""
UNMETERED = """
SELECT meter.source_uid, row.hour::text FROM billing_measuredenergy AS row JOIN billing_meter AS meter ON meter.id = row.meter_id
 WHERE meter.metered_from < meter.metered_until AND NOT EXISTS (
       SELECT FROM billing_usagesegment AS segment
        WHERE segment.meter_id = meter.id AND segment.period && tstzrange(row.hour, row.hour + interval '1 hour')) ORDER BY 1, 2
"""
