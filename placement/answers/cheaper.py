"""Whether a running job moves to a cheaper place that is free now (ADR 63).

The saving is what the work that is certainly left costs less there: at known and announced prices, at the pace of both places,
with what interruptions of spot capacity lose at both. The move costs the work since the last checkpoint, the time to stop, to
start and to pull images, and what leaves a region. The job moves only if the saving exceeds the cost by `MARGIN` of what
staying costs.

How long a price will stand is not known. A difference is counted for as long as it has stood already, and no longer than the
job certainly still runs, or than spot capacity is expected to last. So a job has paid as much for staying as a move costs before it moves (the rule of the ski rental
problem: Karlin et al., "Competitive Snoopy Caching", Algorithmica 3, 1988), and prices that alternate quickly move nothing.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from placement.fleet.prices import cost_over, flavor_at, hourly_cost
from placement.ranking.deadlines import Haste
from placement.ranking.interruptions import slowdown_of
from placement.ranking.runtimes import LONGEST_SECONDS
from placement.values.model import FleetFlavor, PodSetRequest
from placement.values.moving import CheaperMove, CourseOfRun, Side

MARGIN = Decimal("0.05")
"""The part of what staying costs by which a move has to pay."""
STOP_SECONDS = 30
"""A run that is stopped has this time for a checkpoint, and is paid until then."""
REST = timedelta(minutes=30)
"""How long a job is left alone after a move."""
MOST_SAVING_MOVES_A_DAY = 2
"""Of the three moves that the gateway makes of a job in 24 hours: one is left for other causes."""
AN_HOUR = 3600
_STEP = Decimal("0.000001")


def decide(
    pod_sets: tuple[PodSetRequest, ...], here: Side, there: Side, run: CourseOfRun, now: datetime
) -> CheaperMove | None:
    """The move of a run; None if it stays."""
    if not run.least_left_seconds or there.egress is None or _rests(run, now) or not _in_time(here, there, run, now):
        return None
    since = cheaper_since(pod_sets, here, there, run.exposed_seconds, now)
    if since is None:
        return None
    counted = min(run.least_left_seconds, int((now - since).total_seconds()), _until_taken(here, there))
    times = _times(here, there, run.exposed_seconds)
    away = STOP_SECONDS + there.away_seconds
    stay = cost_over(pod_sets, here.flavors, now, counted)
    go = cost_over(pod_sets, there.flavors, now + timedelta(seconds=away), round(counted * times))
    stop = cost_over(pod_sets, here.flavors, now, STOP_SECONDS)
    start = cost_over(pod_sets, there.flavors, now, there.away_seconds + round(run.lost_seconds * times))
    prices = _price(pod_sets, here, now), _price(pod_sets, there, now)
    if None in (stay, go, stop, start, *prices):
        return None
    assert stay is not None and go is not None and stop is not None and start is not None  # noqa: PT018
    assert prices[0] is not None and prices[1] is not None  # noqa: PT018
    saving, cost = stay - go, stop + start + there.egress
    if saving - cost <= MARGIN * stay:
        return None
    return CheaperMove(
        price_here=prices[0],
        price_there=prices[1],
        currency=here.flavors[0].currency,
        saving=saving.quantize(_STEP),
        cost=cost.quantize(_STEP),
        counted_seconds=counted,
        lost_seconds=run.lost_seconds,
        cheaper_since=since,
    )


def cheaper_since(
    pod_sets: tuple[PodSetRequest, ...], here: Side, there: Side, exposed_seconds: int, now: datetime
) -> datetime | None:
    """Since when an hour of the job's work has cost less there, by `MARGIN`, without a break and as far as prices are known; None
    if it does not now.
    """
    if {one.currency for one in here.flavors} != {one.currency for one in there.flavors}:
        return None
    times = Decimal(_times(here, there, exposed_seconds))
    changes = {change.at for side in (here, there) for one in side.flavors for change in one.price_changes}
    since: datetime | None = None
    for at in (now, *sorted((at for at in changes if at < now), reverse=True)):
        costs, less = _price(pod_sets, here, at), _price(pod_sets, there, at)
        if costs is None or less is None or less * times >= costs * (1 - MARGIN):
            break
        since = at
    return since


def may_be_cheaper(
    pod_sets: tuple[PodSetRequest, ...],
    here: Side,
    flavors: Iterable[FleetFlavor],
    run: CourseOfRun,
    fastest: float,
    now: datetime,
) -> bool:
    """Whether any of the flavors could be: a quick look before the trial of placement. `fastest` is the best pace of the job."""
    costs = _price(pod_sets, here, now)
    if not costs or not run.least_left_seconds or _rests(run, now):
        return False
    bound = costs * Decimal(slowdown_of(here.interruptions_per_hour, run.exposed_seconds) * here.pace / fastest)
    known = (hourly_cost(pod_sets, (flavor_at(one, now),) * len(pod_sets)) for one in flavors)
    return any(cost is not None and cost < bound for cost in known)


def _price(pod_sets: tuple[PodSetRequest, ...], side: Side, at: datetime) -> Decimal | None:
    return hourly_cost(pod_sets, tuple(flavor_at(one, at) for one in side.flavors))


def _times(here: Side, there: Side, exposed_seconds: int) -> float:
    """How many seconds the work of one second here takes there."""
    return (there.pace * slowdown_of(there.interruptions_per_hour, exposed_seconds)) / (
        here.pace * slowdown_of(here.interruptions_per_hour, exposed_seconds)
    )


def _until_taken(here: Side, there: Side) -> int:
    """On spot capacity, the mean time until either is taken away: then it is placed again in any case, at the cheapest place."""
    if not here.is_spot:
        return LONGEST_SECONDS
    rate = here.interruptions_per_hour + there.interruptions_per_hour
    return LONGEST_SECONDS if not rate else int(AN_HOUR / rate)


def _rests(run: CourseOfRun, now: datetime) -> bool:
    lately = run.last_moved_at is not None and now < run.last_moved_at + REST
    return lately or run.saving_moves_today >= MOST_SAVING_MOVES_A_DAY or run.moves_today > MOST_SAVING_MOVES_A_DAY


def _in_time(here: Side, there: Side, run: CourseOfRun, now: datetime) -> bool:
    """Whether it may still take as long as it may there: its deadline is met, even if it is interrupted, and it is not stopped
    because it runs too long. It is not moved again for a while, so the time of that is kept as well.
    """
    ratio = there.pace / here.pace
    left = round((run.most_left_seconds + run.lost_seconds) * ratio)
    if run.most_seconds is not None and left > run.most_seconds:
        return False
    if run.finish_by is None:
        return True
    haste = Haste(run.finish_by, left, round(run.exposed_seconds * ratio))
    later = now + REST
    slack = haste.slack_after_loss(later, 1.0, 1.0) if there.is_spot else haste.slack(later, 1.0)
    return slack >= there.away_seconds
