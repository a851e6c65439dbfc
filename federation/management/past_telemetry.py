"""What the GPUs of the demo's past jobs did, made up as a Prometheus would have reported it, and what is recommended from it."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from billing.models import Meter, Recommendation, UtilisationHour
from billing.operations.recommendations import accept, dismiss, require_labels
from federation.management.demo import ORGANISATION
from federation.operations import find_recommendations
from foundation.clock import now
from tenancy.models import User
from tenancy.queries import SYSTEM, actor_for

SEEN = timedelta(days=45)
AN_HOUR = timedelta(hours=1)
ACCEPTED_AGO = timedelta(days=16)
IDLE_SHARE = 0.08
REQUIRED = ("stage",)
STEP = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Profile:
    """The used part of the GPUs, the active part of their multiprocessors, and the peak of the memory in MiB."""

    used: float
    active: float
    peak_mib: int


PROFILES: Mapping[str, Profile] = {
    "pretrain": Profile(0.93, 0.71, 74_300),
    "finetune": Profile(0.82, 0.58, 66_900),
    "eval": Profile(0.44, 0.09, 7_100),
    "segment": Profile(0.76, 0.41, 31_800),
    "rank": Profile(0.38, 0.17, 14_200),
    "assistant": Profile(0.21, 0.12, 4_700),
}
IDLE = Profile(0.01, 0.0, 900)


def record_past_telemetry() -> int:
    """Writes the hours of the last weeks' past jobs, the same ones on each run, only if there are none yet. Returns their number."""
    if UtilisationHour.objects.exists():
        return 0
    chance = random.Random(21)  # noqa: S311 - a made-up history, the same for everyone
    since = now() - SEEN
    meters = Meter.objects.filter(metered_from__gte=since, gpu_units__gt=0).order_by("metered_from", "source_uid")
    rows = [row for meter in meters.iterator(chunk_size=2000) for row in _hours(meter, chance)]
    UtilisationHour.objects.bulk_create(rows, batch_size=1000)
    return len(rows)


def recommend() -> None:
    """Requires a label, finds what is recommended now, and decides about two of them: one was accepted weeks ago."""
    if Recommendation.objects.exists():
        return
    require_labels(SYSTEM, ORGANISATION, now().date(), REQUIRED)
    find_recommendations()
    finance = actor_for(User.objects.get(email=f"lena@{ORGANISATION}.example"))
    rows = Recommendation.objects.filter(state=Recommendation.State.OPEN).order_by("-high")
    accepted = rows.filter(kind="idle").first()
    if accepted is not None:
        accept(finance, accepted.id, "workers that wait end now", at=now() - ACCEPTED_AGO)
    dismissed = rows.filter(kind="idle").last()
    if dismissed is not None and dismissed != accepted:
        dismiss(finance, dismissed.id, "a debugging session, which ended")


def _hours(meter: Meter, chance: random.Random) -> Iterator[UtilisationHour]:
    profile = PROFILES.get(meter.workload_name.partition("-")[0])
    if profile is None:
        return
    if chance.random() < IDLE_SHARE:
        profile = IDLE
    hour = meter.metered_from.replace(minute=0, second=0, microsecond=0)
    while hour < meter.metered_until:
        seconds = _seconds(meter, hour)
        if seconds:
            factor = chance.uniform(0.85, 1.05)
            yield UtilisationHour(
                meter=meter, hour=hour, coverage_seconds=seconds, utilisation=_ratio(profile.used * factor),
                sm_active=_ratio(profile.active * factor), peak_memory_mib=int(profile.peak_mib * min(factor, 1)),
            )  # fmt: skip
        hour += AN_HOUR


def _seconds(meter: Meter, hour: datetime) -> int:
    part = min(meter.metered_until, hour + AN_HOUR) - max(meter.metered_from, hour)
    return max(int(part.total_seconds()), 0)


def _ratio(value: float) -> Decimal:
    return Decimal(str(min(value, 1.0))).quantize(STEP)
