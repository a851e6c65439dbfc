"""Plans and applies files of the numbers that energy and emissions are computed from."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal, TypeAlias
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from billing import locks
from billing.engine.carbon_file import (
    LICENCE_LENGTH,
    SOURCE_LENGTH,
    Intensity,
    Measured,
    NotCarbonFile,
    RatedPart,
    Row,
    SiteOf,
    read_carbon_file,
)
from billing.models import CarbonSite, GridIntensity, MeasuredEnergy, Meter, PowerRating
from billing.queries.committed_clusters import CommittedClusters
from billing.queries.sharing import organisation_at
from foundation.problems import Conflict, Invalid
from foundation.rows import insert_rows
from foundation.transactions import retried
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

AT_A_TIME = 5_000
HOUR = timedelta(hours=1)
Kind: TypeAlias = Literal["intensities", "ratings", "sites", "measured"]
Number: TypeAlias = tuple[object, ...]
"""What a row says of its key, comparable with what is known."""
KINDS: Mapping[type[Row], Kind] = {
    Intensity: "intensities", RatedPart: "ratings", SiteOf: "sites", Measured: "measured",
}  # fmt: skip
KEY_COLUMNS: Mapping[Kind, int] = {"intensities": 3, "ratings": 3, "sites": 2, "measured": 3}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the numbers of a file are from, and under which licence they may be used."""

    source: str
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A row that is new, or (with `before`) replaces another number."""

    row: Row
    number: Number
    before: Number | None

    @property
    def key(self) -> str:
        """What it is of, for people."""
        return " ".join(_shown(each) for each in self.row.key if each != "")


@dataclass(frozen=True, slots=True)
class CarbonPlan:
    """What a file changes; `known` rows say what applies already."""

    kind: Kind
    organisation: str
    changes: tuple[Change, ...]
    known: int

    @property
    def corrections(self) -> tuple[Change, ...]:
        """The rows that replace another number."""
        return tuple(one for one in self.changes if one.before is not None)

    @property
    def digest(self) -> str:
        """Names exactly these changes."""
        rows = [[_shown(each) for each in (*astuple(one.row), *(one.before or ()))] for one in self.changes]
        return sha256(json.dumps([self.kind, self.organisation, rows]).encode()).hexdigest()


def _shown(value: object) -> str:
    return value.strftime("%Y-%m-%dT%H:00Z") if hasattr(value, "strftime") else str(value)


def plan_carbon(actor: Actor, path: str, text: str) -> CarbonPlan:
    """What the file would change for an organisation; an empty path: for all of them, which only the platform itself may, and
    only for intensities and ratings. Raises NotFound, NotAllowedHere, Invalid.
    """
    return _planned(_organisation(actor, path), text)[0]


@retried
def apply_carbon(
    actor: Actor, path: str, text: str, origin: Origin, *, expected: str = "", corrects: bool = False
) -> CarbonPlan:
    """Adds the rows of the file: all of them or none. Rows that replace another number need `corrects`.

    Raises NotFound, NotAllowedHere, Invalid, Conflict `carbon_changed` if the plan is not the expected one, `carbon_differs`.
    """
    organisation = _organisation(actor, path)
    _judge_origin(origin)
    with transaction.atomic():
        locks.import_carbon()
        plan, ids = _planned(organisation, text)
        if expected not in {"", plan.digest}:
            raise Conflict("The plan is no longer what it was: plan again.", code="carbon_changed")
        if plan.kind == "intensities" and not origin.licence:
            raise Invalid.field("licence", "required", "say under which licence the intensities may be used")
        if plan.corrections and not corrects:
            first = plan.corrections[0]
            raise Conflict(
                f"{len(plan.corrections)} rows differ from what applies, such as {first.key}: {first.number} and {first.before}."
                " Say that the file corrects them.",
                code="carbon_differs",
            )
        shared = {
            "source": origin.source, "licence": origin.licence, "made_by_id": actor.user_id, "made_by_name": actor.name,
        }  # fmt: skip
        for start in range(0, len(plan.changes), AT_A_TIME):
            some = plan.changes[start : start + AT_A_TIME]
            insert_rows([_model(one.row, organisation, ids, shared) for one in some])
        if plan.changes:
            record_audit(
                actor, "carbon.import", object_kind="carbon", object_id=plan.digest[:16],
                tenant_id=organisation.id if organisation else None,
                detail={
                    "kind": plan.kind, "added": len(plan.changes) - len(plan.corrections), "corrected": len(plan.corrections),
                    "source": origin.source, "licence": origin.licence,
                },
            )  # fmt: skip
    return plan


def _organisation(actor: Actor, path: str) -> Tenant | None:
    return organisation_at(actor, path, may_close=True) if path or actor.user_id is not None else None


def _judge_origin(origin: Origin) -> None:
    for name, text, most in (("source", origin.source, SOURCE_LENGTH), ("licence", origin.licence, LICENCE_LENGTH)):
        if len(text) > most or not text.isprintable() or (name == "source" and not text.strip()):
            raise Invalid.field(name, "bad_format", f"up to {most} printable characters")


Ids: TypeAlias = Mapping[tuple[str, str], Any]
"""The clusters that a file names (with an empty pod), and its pods' meters, by (cluster, pod)."""


def _planned(organisation: Tenant | None, text: str) -> tuple[CarbonPlan, Ids]:
    try:
        rows = read_carbon_file(text)
    except NotCarbonFile as error:
        raise Invalid.field("file", "bad_format", str(error)) from error
    if not rows:
        raise Invalid.field("file", "bad_format", "the file has no rows")
    kind = KINDS[type(rows[0])]
    ids = _ids(organisation, rows)
    known = dict(_known(kind, organisation, rows, ids))
    changes, unchanged = [], 0
    for row in rows:
        number = _number(row)
        before = known.get(_key(row, ids))
        if number == before:
            unchanged += 1
        else:
            changes.append(Change(row, number, before))
    return CarbonPlan(kind, organisation.path if organisation else "", tuple(changes), unchanged), ids


def _number(row: Row) -> Number:
    return tuple(astuple(row)[KEY_COLUMNS[KINDS[type(row)]] :])


def _key(row: Row, ids: Ids) -> Number:
    if isinstance(row, SiteOf):
        return ids[row.cluster, ""], row.since
    if isinstance(row, Measured):
        return ids[row.cluster, row.pod].id, row.hour
    return row.key


def _ids(organisation: Tenant | None, rows: Sequence[Row]) -> Ids:
    """The clusters and meters that the rows name. Raises Invalid."""
    named = [row for row in rows if isinstance(row, SiteOf | Measured)]
    if not named:
        return {}
    if organisation is None:
        raise Invalid.field("organisation", "required", "name the organisation that has these clusters")
    clusters, found = CommittedClusters(organisation), {}
    for name in {row.cluster for row in named}:
        found[name, ""] = clusters.id_of(name)
        if found[name, ""] is None:
            raise Invalid.field("file", "unknown_cluster", f"there is no cluster {name} of {organisation.path}")
    return {**found, **_meters(found, [row for row in named if isinstance(row, Measured)])}


def _meters(
    clusters: Mapping[tuple[str, str], UUID | None], rows: Collection[Measured]
) -> Mapping[tuple[str, str], Meter]:
    meters = {}
    by_cluster = {name: {row.pod for row in rows if row.cluster == name} for name in {row.cluster for row in rows}}
    for name, pods in by_cluster.items():
        for meter in Meter.objects.filter(cluster=clusters[name, ""], source_uid__in=pods):
            meters[name, meter.source_uid] = meter
    for row in rows:
        found = meters.get((row.cluster, row.pod))
        if found is None:
            raise Invalid.field("file", "unknown_pod", f"there is no usage of a pod {row.pod} on {row.cluster}")
        ends = row.hour + HOUR
        is_its = found.metered_from < ends and row.hour < found.metered_until
        if not is_its or not (found.is_closed or found.metered_until >= ends):
            detail = f"the hour {_shown(row.hour)} of pod {row.pod} is not metered, or not yet to its end"
            raise Invalid.field("file", "not_metered", detail)
    return meters


def _known(kind: Kind, organisation: Tenant | None, rows: Sequence[Row], ids: Ids) -> Iterable[tuple[Number, Number]]:
    """What applies now, by key: later rows come last."""
    if kind == "intensities":
        spans = [row for row in rows if isinstance(row, Intensity)]
        kept: QuerySet[Any] = GridIntensity.objects.filter(
            organisation=organisation, region__in={row.region for row in spans},
            valid_from__gte=min(row.start for row in spans), valid_from__lte=max(row.start for row in spans),
        )  # fmt: skip
        columns: tuple[str, ...] = ("region", "valid_from", "valid_until", "milligrams_per_kwh")
    elif kind == "ratings":
        kept = PowerRating.objects.filter(organisation=organisation)
        columns = ("part", "gpu_model", "since", "milliwatts", "embodied_grams", "life_hours")
    elif kind == "sites":
        kept = CarbonSite.objects.filter(cluster__in=[id_ for (_, pod), id_ in ids.items() if not pod])
        columns = ("cluster_id", "since", "region", "pue_thousandths")
    else:
        hours = [row.hour for row in rows if isinstance(row, Measured)]
        kept = MeasuredEnergy.objects.filter(
            meter__in=[meter.id for (_, pod), meter in ids.items() if pod], hour__gte=min(hours), hour__lte=max(hours)
        )
        columns = ("meter_id", "hour", "milliwatt_hours")
    size = 2 if kind == "measured" else KEY_COLUMNS[kind]
    for row in kept.order_by("id").values_list(*columns):
        yield tuple(row[:size]), tuple(row[size:])


def _model(row: Row, organisation: Tenant | None, ids: Ids, shared: Mapping[str, Any]) -> Any:
    if isinstance(row, Intensity):
        return GridIntensity(
            organisation=organisation, region=row.region, valid_from=row.start, valid_until=row.until,
            milligrams_per_kwh=row.milligrams_per_kwh, **shared,
        )  # fmt: skip
    if isinstance(row, RatedPart):
        return PowerRating(
            organisation=organisation, part=row.part, gpu_model=row.gpu_model, since=row.since, milliwatts=row.milliwatts,
            embodied_grams=row.embodied_grams, life_hours=row.life_hours, **shared,
        )  # fmt: skip
    if isinstance(row, SiteOf):
        return CarbonSite(
            cluster_id=ids[row.cluster, ""],
            since=row.since,
            region=row.region,
            pue_thousandths=row.pue_thousandths,
            **shared,
        )
    return MeasuredEnergy(meter=ids[row.cluster, row.pod], hour=row.hour, milliwatt_hours=row.milliwatt_hours, **shared)
