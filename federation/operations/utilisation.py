"""Asks the Prometheus of each cluster, hour by hour, what the GPUs of its jobs did. No transaction is open meanwhile.

What a Prometheus says is hostile text: it is measured against the pods that were asked for, and changes no charge.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from itertools import islice

from billing.engine.utilisation import Hour, MeteredPod, Numbers, hour_of, is_measurable, pods_to_ask_for
from billing.operations.utilisation import Ask, Told, claim_hours, keep_hour, plan_hours
from clusters.drivers.telemetry import Answers, Inquiry, ask_all
from clusters.engine.hook_servers import read_hook_url
from clusters.engine.sealing import CannotUnseal
from clusters.engine.telemetry import Metric, NoAnswer, Number, Over, PodName, questions, read_answer
from clusters.operations.telemetry import opened_token
from federation.queries.utilisation import metered_pods
from foundation.turns import Turn, endless_turn

AT_ONCE = 4
"""Clusters that a worker asks side by side, for one hour each."""
AN_HOUR = timedelta(hours=1)
NO_HOUR = Hour((), 0)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An ask with its pods and questions, or why it cannot be made. Without questions, nothing is left to be measured."""

    ask: Ask
    pods: Sequence[MeteredPod]
    asked: Sequence[tuple[Metric, Over, frozenset[PodName], str]] = ()
    inquiry: Inquiry | None = field(default=None, repr=False)
    why_not: str = ""


def measure_utilisation(turn: Turn | None = None) -> None:
    """Asks for the pending hours until none is left."""
    turn = turn or endless_turn()
    plan_hours()
    while claims := claim_hours(AT_ONCE):
        prepared = [_prepare(claim) for claim in claims]
        answers = iter(ask_all([one.inquiry for one in prepared if one.inquiry is not None]))
        for one in prepared:
            keep_hour(one.ask, _told(one, next(answers) if one.inquiry is not None else Answers(why_not=one.why_not)))
        turn.beat()
        if turn.is_over:
            turn.has_more = True
            return


def _prepare(ask: Ask) -> Prepared:
    pods = metered_pods(ask.cluster_id, ask.hour)
    asked = tuple(questions(pods_to_ask_for(pods)))
    if not asked:
        return Prepared(ask, pods)
    try:
        token, server = opened_token(ask.cluster_id, ask.key_id, ask.sealed), read_hook_url(ask.url)
    except CannotUnseal:
        return Prepared(ask, pods, why_not="the stored token cannot be opened")
    except ValueError:
        return Prepared(ask, pods, why_not="the URL cannot be read")
    until = int((ask.hour.astimezone(UTC) + AN_HOUR).timestamp())
    return Prepared(ask, pods, asked, Inquiry(server, [query for *_, query in asked], until, token))


def _told(one: Prepared, answers: Answers) -> Told:
    own = [pod for pod in one.pods if is_measurable(pod)]
    before = {pod.meter_id for pod in own if pod.seen_seconds}
    if answers.why_not:
        return Told(NO_HOUR, len(own), len(before), why_not=answers.why_not)
    found: dict[tuple[Metric, Over], list[Number]] = defaultdict(list)
    foreign = unusable = 0
    try:
        for (metric, over, pods, _), body in zip(one.asked, islice(answers.bodies, len(one.asked)), strict=True):
            read = read_answer(body, metric, over, pods)
            found[metric, over] += read.numbers
            foreign, unusable = foreign + read.foreign, unusable + read.unusable
    except NoAnswer as error:
        return Told(NO_HOUR, len(own), len(before), why_not=str(error))
    numbers: Numbers = found
    hour = hour_of(one.pods, numbers)
    measured = before | {row.meter_id for row in hour.rows}
    return Told(hour, len(own), len(measured), foreign, unusable + hour.unusable)
