"""What providers and programs announce while jobs run: nodes that will be taken away soon, progress, and checkpoints."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, close_old_connections

from devtools.simulation.core.history import Asked
from devtools.simulation.judges.promises import judging, runs_on
from devtools.simulation.setting.stage import CLUSTERS
from federation.engine.relocation import SPOT_NOTICE, TERMINATION_TAINTS
from federation.engine.reports import MOST_CHECKPOINTS
from federation.operations.reports import admit_report, record_report
from foundation.problems import Problem

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

LATEST_SECONDS = SPOT_NOTICE.total_seconds()
SOONEST_SECONDS = 30.0
"""The soonest that a node goes away after its notice: providers do not always keep their two minutes."""
LOOKS, LOOK_SECONDS = 12, 5.0
"""How often the provider waits for a node that is used."""
RUNNING = "SELECT id FROM federation_attempt WHERE state = 'running' ORDER BY id"
MAY_RUN = "SELECT FROM federation_attempt WHERE id = %s AND state IN ('starting', 'running', 'unknown')"
REPORTS, PAUSE_SECONDS = 8, 5.0
"""How often a program reports, and the longest pause between two reports."""
WRONG: tuple[dict[str, Any], ...] = (
    {"sequence": -1},
    {"step": 1},
    {"sequence": 10**6, "step": 2, "total_steps": 1},
    {"sequence": 10**6, "checkpoint": {"reference": "not one word"}},
    {"sequence": 10**6, "series": {"loss": 1.0}},
)


def give_notice(world: "World", left: int = LOOKS) -> None:
    """The provider announces with a taint that it takes a node away, one with pods if there are any soon, and does that within
    two minutes.
    """
    if world.faults.is_healed:
        return  # no operator would repair the node
    if left and not any(cluster.running for cluster in world.clusters.values()):
        world.scheduler.after(LOOK_SECONDS, lambda: give_notice(world, left - 1))
        return
    cluster = world.clusters[CLUSTERS[world.faults.choose(CLUSTERS)]]
    busy = {pod.node for pod in cluster.pods.values() if not pod.is_ended}
    nodes = [node for _, node in sorted(cluster.nodes.items()) if node.is_ready and not node.taints]
    nodes = [node for node in nodes if node.name in busy] or nodes
    if not nodes:
        return
    node = nodes[world.faults.choose(nodes)]
    taint = TERMINATION_TAINTS[world.faults.choose(TERMINATION_TAINTS)]
    world.noticed.append((world.scheduler.now_us, cluster.name, node.name))
    cluster.announce_end(node.name, taint)

    def take_away() -> None:
        if node.taints and node.is_ready and not world.faults.is_healed:
            cluster.kill_node(node.name)

    world.scheduler.after(world.faults.between(SOONEST_SECONDS, LATEST_SECONDS), take_away)


def report(world: "World") -> None:
    """A running program reports for a while: late, twice, in another order, and sometimes what cannot be."""
    attempts = [id_ for (id_,) in world.watch.rows(RUNNING)]
    if attempts and not world.processes["web"].is_dead:
        report_of(world, attempts[world.faults.choose(attempts)])


def report_of(
    world: "World", attempt_id: UUID, extra: "Extra | None" = None, wrong: Sequence[dict[str, Any]] = ()
) -> None:
    """The program of this attempt reports for a while, with more in some reports, and wrongly in the end."""
    sequences = [world.faults.choose(range(REPORTS)) for _ in range(REPORTS)]
    web = world.processes["web"]
    world.machine.start(web, "reports", lambda: _report_all(world, attempt_id, sequences, extra or _nothing, wrong))


Extra = Callable[[int], dict[str, Any]]
"""What is added to a report of this sequence."""


def _nothing(_sequence: int) -> dict[str, Any]:
    return {}


def _report_all(
    world: "World", attempt_id: UUID, sequences: list[int], extra: Extra, wrong: Sequence[dict[str, Any]]
) -> None:
    for turn, sequence in enumerate(sequences):
        world.scheduler.sleep(world.faults.between(0, PAUSE_SECONDS))
        _report(world, attempt_id, sequence, extra)
        if turn == sequence:
            _report_wrongly(world, attempt_id, WRONG[turn % len(WRONG)])
    for body in wrong:
        _report_wrongly(world, attempt_id, body)


def _report(world: "World", attempt_id: UUID, sequence: int, extra: Extra) -> None:
    asked = Asked("program", "report", str(attempt_id), world.scheduler.now_us, told=sequence)
    world.history.asked.append(asked)
    may_run = bool(world.watch.rows(MAY_RUN, str(attempt_id)))
    close_old_connections()
    try:
        admit_report(attempt_id)
        record_report(attempt_id, _body(sequence) | extra(sequence))
    except Problem as problem:
        asked.answer = "refused"
        if problem.code not in ("rate_limited", "not_authenticated"):
            world.machine.unexpected.append(f"a report of {attempt_id} is refused as {problem.code}: {problem}")
    except Error as error:
        world.tell("program", f"never learns whether its report is stored: {type(error).__name__}")
    else:
        asked.answer = "ok"
        if not may_run:
            world.machine.unexpected.append(f"a report of {attempt_id} was accepted after its end")
    asked.to_us = world.scheduler.now_us


def _body(sequence: int) -> dict[str, Any]:
    """A report from which its sequence can be read again. Each second one names a checkpoint."""
    body: dict[str, Any] = {
        "sequence": sequence,
        "step": sequence,
        "total_steps": REPORTS,
        "loss": 1.0 / (1 + sequence),
    }
    return body if sequence % 2 else body | {"checkpoint": {"reference": f"s3://saved/{sequence}", "size_bytes": 1}}


def _report_wrongly(world: "World", attempt_id: UUID, body: dict[str, Any]) -> None:
    close_old_connections()
    try:
        record_report(attempt_id, body)
    except Problem as problem:
        if problem.status >= 500:
            world.machine.unexpected.append(f"the report {body} is answered {problem.status}: {problem}")
    except Error as error:
        world.tell("program", f"never learns that its report is wrong: {type(error).__name__}")
    else:
        world.machine.unexpected.append(f"the report {body} is not refused")


@judging
def a_report_is_stored_and_never_taken_back(world: "World") -> list[str]:
    """What is stored of an attempt is a report that its program sent, and no older one than any that was acknowledged, with its
    newest checkpoint. After a restore of the database, older ones may be stored.
    """
    sent, kept = _reports(world, was_acknowledged=False), _reports(world, was_acknowledged=True)
    if world.lost_commits.spans:
        kept = {}
    stored = {str(row[0]): row[1:] for row in world.watch.rows(STORED)}
    found = [f"nothing is stored of the reports of attempt {id_}" for id_ in kept if id_ not in stored]
    for id_, (sequence, step, saved, count) in stored.items():
        acknowledged = kept.get(id_, [])
        if sequence > NONE_YET and (sequence not in sent.get(id_, ()) or step != sequence):
            found.append(f"attempt {id_} is at step {step} by report {sequence}, which its program did not send")
        if acknowledged and sequence < max(acknowledged):
            found.append(f"attempt {id_} has report {sequence}, and {max(acknowledged)} was acknowledged")
        if count > MOST_CHECKPOINTS or saved < max((one for one in acknowledged if one % 2 == 0), default=saved):
            found.append(f"attempt {id_} has {count} checkpoints, the newest of report {saved}")
    return found


NONE_YET = -1
STORED = """
SELECT progress.attempt_id, progress.sequence, progress.step, coalesce(max(saved.sequence), -1), count(saved.id)
  FROM federation_progress AS progress
  LEFT JOIN federation_checkpoint AS saved ON saved.attempt_id = progress.attempt_id
 GROUP BY progress.attempt_id ORDER BY progress.attempt_id
"""


def _reports(world: "World", *, was_acknowledged: bool) -> dict[str, list[int]]:
    """The sequences of the reports that were acknowledged, or that may have been stored, by attempt."""
    found: dict[str, list[int]] = {}
    for one in world.history.asked:
        if one.what == "report" and one.answer != "refused" and (one.answer == "ok" or not was_acknowledged):
            found.setdefault(one.subject, []).append(one.told)
    return found


@judging
def only_a_notice_moves_a_run_as_spot(world: "World") -> list[str]:
    """A run that the gateway moved because its node goes away was on a node with a notice."""
    places = {(run.attempt_id, run.cluster, run.node) for run in runs_on(world)}
    return [
        f"attempt {id_} was moved off its node, which had no notice"
        for id_, at_us in world.watch.rows(SPOT)
        if not any(when_us < at_us and (str(id_), cluster, node) in places for when_us, cluster, node in world.noticed)
    ]


SPOT = """
SELECT attempt_id, (extract(epoch FROM created_at) * 1000000)::bigint FROM federation_move WHERE cause = 'spot' ORDER BY 1
"""

EVENTS: dict[str, Callable[["World"], None]] = {"spot_notice": give_notice, "programs_report": report}
"""By the kind of fault."""
