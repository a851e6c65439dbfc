"""Accountants who commit their organisation to capacity that it pays in advance, change the terms and withdraw them, each from a plan
that the other one may have overtaken. However they do it, each hour costs its part of what was paid, and jobs that used it bear that.
"""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from billing.operations.commitments import apply_commitments, plan_commitments
from clusters.models import Flavor
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS
from tenancy.queries import Actor

from .finance import Doing

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "committed"
DOINGS = 4
"""How much each accountant does of it, on the next day and a month later."""
NAMES = ("early", "late", "owned")
HOUR = timedelta(hours=1)
HOURS = (1, 2, 2, 24, 24, 24, 60, 60, 2000)
"""How long a commitment lasts: some end with the day, few go on after the last month, because each of their days is split again with
each version.
"""
STARTS = (-24 * 40, -2, -2, -1, -1, 0, 0, 0, 0, 0, 1, 1)
"""How many hours after the world's beginning it starts."""
UNITS = (1, 1, 4, 64)
WRONG = 0.08
"""The share of the files that cannot be read."""
COMMITTING = ("validation_failed", "commitments_changed", "not_found")
A_UNIT_HOUR = 3_600_000_000
"""In thousandths of a unit times milliseconds."""
TOLERANCE = 100
"""Of the same: what several users of an hour, or several commitments, leave to rounding."""
A_DAY_US = 24 * 3_600_000_000
FINEST, TWELVE = Decimal("1e-10"), 10**12


class Commit:
    """What one accountant does with commitments."""

    def __init__(self, actor: Actor, world: "World") -> None:
        self._actor = actor
        self._is_drawn = KIND in world.faults.rates
        self._chance = random.Random(f"{world.seed}/commit/{actor.name}")
        self._begins_at = world.begins_at.replace(minute=0, second=0, microsecond=0)

    def added_to(self, doings: list[Doing]) -> list[Doing]:
        """The things to do, with some of these among them."""
        for _ in range(DOINGS if self._is_drawn else 0):
            doings.insert(self._chance.randrange(len(doings) + 1), self._any())
        return doings

    def _any(self) -> Doing:
        how = self._chance.choice(("commits", "plans to commit", "commits as planned", "commits as planned"))
        names = self._chance.sample(NAMES, self._chance.choice((1, 2)))
        chance = random.Random(self._chance.random())
        return (f"{how} to {' and '.join(sorted(names))}", lambda: self._commit(how, names, chance), COMMITTING)

    def _commit(self, how: str, names: list[str], chance: random.Random) -> None:
        """Applies a file of these; some without a plan, and some by a plan that does not count any more."""
        text = "commitments:\n" + "".join(self._terms(name, chance) for name in names)
        if chance.random() < WRONG:
            text = text.replace("kind:", "sort:")
        if how == "commits":
            apply_commitments(self._actor, "acme", text)
            return
        plan = plan_commitments(self._actor, "acme", text)
        if how == "commits as planned":
            apply_commitments(self._actor, "acme", text, plan.digest if chance.random() < 0.9 else "another")

    def _terms(self, name: str, chance: random.Random) -> str:
        start = self._begins_at + chance.choice(STARTS) * HOUR
        until = start + chance.choice(HOURS) * HOUR
        flavors = [*Flavor.objects.order_by("name").values_list("name", flat=True).distinct(), "none-such"]
        clusters = chance.choice(([CLUSTERS[0]], [CLUSTERS[1]], list(CLUSTERS), list(CLUSTERS)))
        lines = {
            "name": name,
            "kind": chance.choice(("reserved_instance", "own_purchase")),
            "clusters": f"[{', '.join(clusters)}]",
            "flavor": chance.choice((*flavors[:-1] * 8, flavors[-1])),
            "capacity_type": "on_demand",
            "units": chance.choice(UNITS),
            "start": f"{start:%Y-%m-%dT%H:00:00Z}",
            "until": f"{until:%Y-%m-%dT%H:00:00Z}",
            "upfront": f"{chance.randrange(1, 10**9)}.{chance.randrange(10**6):06}",
            "recurring": chance.choice(("0", "0.000001", "17.5")),
            "currency": chance.choice(("USD",) * 9 + ("EUR",)),
            "withdrawn": chance.choice(("false", "false", "false", "true")),
        }
        return "".join(f"  {'- ' if key == 'name' else '  '}{key}: {value}\n" for key, value in lines.items())


class _Hour(NamedTuple):
    """What the gateway says of an hour of the newest version of a commitment. Without a split, it has no quantity."""

    name: str
    clusters: list[Any]
    flavor: str
    capacity_type: str
    units: int
    start: datetime
    until: datetime
    total: Decimal
    hour: datetime
    quantity: Decimal | None
    used_quantity: Decimal
    amortised: Decimal
    used: Decimal

    @property
    def part(self) -> Decimal:
        """What belongs to the hour of what is paid."""
        whole, hours = int(self.total * TWELVE), (self.until - self.start) // HOUR
        passed = (self.hour - self.start) // HOUR
        return Decimal(whole * (passed + 1) // hours - whole * passed // hours) / TWELVE

    @property
    def fair(self) -> Decimal:
        """What users bear of it for what they used."""
        return self.amortised * self.used_quantity / (self.units * A_UNIT_HOUR)


@judging
def promise_16_commitments_cost_what_was_paid_and_used(world: "World") -> list[str]:
    """In the end, each hour of a commitment that has ended is split, costs its part of what was paid, and is used as far as jobs ran
    on what it covers, counted here from the segments. Tenants bear what was used of it, and nothing more.
    """
    if not world.are_books_kept or KIND not in world.faults.rates:
        return []
    found, left = list[str](), _used(world)
    today = world.scheduler.now_us // A_DAY_US * A_DAY_US
    credits_losses = bool(world.watch.rows(CREDITED))
    hours = [_Hour(*row) for row in world.watch.rows(SPLIT, today)]
    for one in sorted(hours, key=lambda each: (each.hour, each.start, each.name)):
        where = f"the hour {one.hour:%m-%d %H} of {one.name}"
        if one.quantity is None:
            found.append(f"{where} is not split")
            continue
        due = _take(one, left) - int(one.used_quantity)
        if (int(one.quantity), one.amortised) != (one.units * A_UNIT_HOUR, one.part):
            found.append(f"{where} has {one.quantity} for {one.amortised}, and should cost {one.part}")
        if due < -TOLERANCE or (due > TOLERANCE and not credits_losses):
            found.append(f"{where} counts {one.used_quantity}, and lacks {float(due)}")
        if abs(one.used - one.fair) > FINEST:
            found.append(f"{where} cost {one.used} of {one.amortised} for {one.used_quantity}")
    borne = dict(world.watch.rows(BORNE))
    due_now = sum((one.used for one in hours if one.quantity is not None), Decimal(0))
    if borne.get("used commitment", Decimal(0)) != due_now:
        found.append(f"tenants bear {borne.get('used commitment')} of commitments, and used {due_now}")
    return found


def _used(world: "World") -> dict[tuple[Any, str, str, datetime], Fraction]:
    """Thousandths of GPUs times milliseconds, by cluster, flavor, capacity type and hour."""
    found: dict[tuple[Any, str, str, datetime], Fraction] = defaultdict(Fraction)
    for cluster, flavor, capacity_type, gpus, start, until in world.watch.rows(USED):
        at = start.astimezone(UTC)
        while at < until:
            hour = at.replace(minute=0, second=0, microsecond=0)
            end = min(hour + HOUR, until)
            found[cluster, flavor, capacity_type, hour] += 1000 * gpus * ((end - at) // timedelta(milliseconds=1))
            at = end
    return found


def _take(one: _Hour, left: dict[tuple[Any, str, str, datetime], Fraction]) -> Fraction:
    """What of the usage is the commitment's; those after it have the rest, from all clusters alike."""
    keys = [(cluster, one.flavor, one.capacity_type, one.hour.astimezone(UTC)) for cluster in one.clusters]
    there = sum((left[key] for key in keys), Fraction(0))
    taken = min(Fraction(one.units * A_UNIT_HOUR), there)
    for key in keys:
        left[key] -= taken * left[key] / there if there else 0
    return taken


CREDITED = "SELECT FROM billing_creditpolicy WHERE causes <> '[]' LIMIT 1"
USED = """
SELECT meter.cluster_id, meter.flavor, meter.capacity_type, meter.gpu_units, lower(segment.period), upper(segment.period)
  FROM billing_usagesegment AS segment JOIN billing_meter AS meter ON meter.id = segment.meter_id
 WHERE split_part(meter.tenant_path, '/', 1) = 'acme' ORDER BY segment.id
"""
SPLIT = """
SELECT commitment.name, version.clusters, version.flavor, version.capacity_type, version.units, version.start, version.until,
       version.total, hour.at, split.quantity, split.used_quantity, split.amortised, split.used
  FROM billing_commitment AS commitment
 CROSS JOIN LATERAL (SELECT * FROM billing_commitmentversion WHERE commitment_id = commitment.id ORDER BY number DESC LIMIT 1) AS version
 CROSS JOIN LATERAL generate_series(
       version.start, least(version.until, simulation.at(%s)) - interval '1 hour', interval '1 hour') AS hour(at)
  LEFT JOIN LATERAL (SELECT id FROM billing_commitmentday AS day
                      WHERE day.commitment_id = commitment.id AND day.version_id = version.id AND day.day = (hour.at AT TIME ZONE 'UTC')::date
                      ORDER BY revision DESC LIMIT 1) AS day ON true
  LEFT JOIN billing_commitmenthour AS split ON split.day_id = day.id AND split.hour = hour.at
 WHERE NOT version.is_withdrawn ORDER BY hour.at, version.start, commitment.name
"""
"""Of the days that have ended."""
BORNE = """
SELECT coalesce(undone.flavor, entry.flavor), sum(line.amount)
  FROM billing_ledgerentry AS entry JOIN billing_ledgerline AS line ON line.entry_id = entry.id
  JOIN billing_ledgeraccount AS account ON account.id = line.account_id AND account.kind = 'tenant_expense'
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = entry.reverses_id
 WHERE coalesce(undone.kind, entry.kind) = 'commitment' GROUP BY 1
"""
