"""What a campaign came to: by the API servers' audit logs, the database, what clients were answered, and what grew."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from devtools.oracle import ENDED_STATES, JOB_LABEL, SeenPod, Verdict, read_witness
from tests.faults.stand import FaultRun, Stand

from .conductor import Happened
from .facts import Facts, Told, Watch
from .sampling import BOUNDS, Sampler
from .schedule import FAULTS
from .server_faults import was_told
from .slopes import Slope, accelerates, judge
from .stage import Stage
from .talk import say

ENDING_SECONDS = 1200
SETTLED_SECONDS = 300
SAID_SECONDS = 15.0
UNDER_WAY = """
SELECT (SELECT count(*) FROM federation_job WHERE state NOT IN ('succeeded', 'failed', 'cancelled'))
     + (SELECT count(*) FROM federation_attempt WHERE finished_at IS NOT NULL AND settled_at IS NULL)
"""
REMOVED_SECONDS = 300
WRONG_CLOCK_SECONDS = 60
"""By how much a bill may be wrong beside a cluster whose clock is wrong by hours (docs/explanation/promises.md)."""
NOTICED_SECONDS = 60.0
"""So long before and after a cluster's clock was wrong, a time that it shows may still be converted with the other difference."""
HISTORY_FACTOR, HISTORY_SLACK_BYTES = 1.5, 2048.0
WARM_UP_SECONDS = 180.0


@dataclass
class Outcome:
    """All findings, as sentences. The campaign is clean if there are none."""

    jobs: int
    verdict: Verdict
    false_ends: list[str]
    broken: list[str]
    left: list[str]
    slopes: list[Slope]
    accelerating: list[str]
    survived: Mapping[str, bool]
    """By fault; those that never happened are not survived."""
    not_survived: list[str] = field(default_factory=list)

    @property
    def growing(self) -> list[str]:
        """Each figure that grows."""
        return [str(slope) for slope in self.slopes if slope.grows] + self.accelerating

    @property
    def findings(self) -> list[str]:
        """Everything that is wrong, with its kind before it."""
        kinds = {
            "lost": self.verdict.lost, "ran twice": self.verdict.ran_twice, "misplaced": self.verdict.misplaced,
            "misbilled": self.verdict.misbilled, "ended falsely": self.false_ends, "broken": self.broken,
            "left behind": self.left, "grows": self.growing, "not survived": self.not_survived,
        }  # fmt: skip
        return [f"{kind}: {sentence}" for kind, sentences in kinds.items() for sentence in sentences]

    @property
    def figures(self) -> dict[str, int | str]:
        """For the last line. All but the jobs, the judged figures, and `estimated`, `doubled` and `unseen` have to be 0."""
        return {
            "jobs": self.jobs,
            "lost": len(self.verdict.lost),
            "ran_twice": len(self.verdict.ran_twice),
            "misbilled": len(self.verdict.misbilled),
            "misplaced": len(self.verdict.misplaced),
            "false_ends": len(self.false_ends),
            "broken": len(self.broken),
            "left_behind": len(self.left),
            "growing": len(self.growing),
            "slopes_judged": len(self.slopes),
            "estimated": len(self.verdict.estimated),
            "doubled": len(self.verdict.doubled),
            "unseen": len(self.verdict.unseen),
            "faults_survived": f"{sum(self.survived.values())}/{len(self.survived)}",
        }


def conclude(stage: Stage, happened: Sequence[Happened], sampler: Sampler) -> Outcome:
    """Waits until all has ended and is settled, and judges it."""
    stand, run = stage.stand, stage.clients.run
    sampler.stop()  # what follows is no load, and would make every slope flatter
    _wait_until_ended(stand, run)
    say("all have ended; judging")
    left = _left_behind(stand, run)
    witness = read_witness({plane.name: plane.layout.audit_log for plane in stand.planes})
    verdict = run.verdict(witness, WrongClocks(happened).slack_ms, stage.clients.removed)
    facts = Facts(
        Watch(stand.databases.primary.address), Told(stage.clients.asked), stage.clients.submissions, _proofs(stand)
    )
    outcome = Outcome(
        len(run.acked), verdict, run.false_ends(), facts.broken(), left,
        judge(sampler.samples, BOUNDS, WARM_UP_SECONDS), accelerating(sampler.sizes), {},
    )  # fmt: skip
    for one in happened:
        if one.planned.fault == "F2":
            one.had_effect = was_told(stage, one.planned)
    outcome.survived, outcome.not_survived = survival(happened, _ended_rightly(stage, outcome))
    return outcome


def _wait_until_ended(stand: Stand, run: FaultRun) -> None:
    """Every job has ended, and its bill is final. What has not ended in time is lost, as the oracle says."""
    until, said = time.monotonic() + ENDING_SECONDS, 0.0
    while left := stand.databases.ask(UNDER_WAY)[0][0]:
        if time.monotonic() > until:
            return
        if time.monotonic() - said > SAID_SECONDS:
            say(f"waiting for {left} jobs to end and attempts to be settled")
            said = time.monotonic()
        time.sleep(1)
    with suppress(AssertionError):
        run.wait_until_settled(SETTLED_SECONDS)


def _left_behind(stand: Stand, run: FaultRun) -> list[str]:
    """Objects that have not ended, some minutes after all jobs have. Those that have ended remain for a while."""
    until = time.monotonic() + REMOVED_SECONDS
    while (left := _unended(stand, run)) and time.monotonic() < until:
        time.sleep(2)
    return left


def _unended(stand: Stand, run: FaultRun) -> list[str]:
    return [
        f"{item['metadata']['name']} on {plane.name}, of {item['metadata']['labels'][JOB_LABEL]}"
        for plane in stand.planes
        for item in stand.jobs_on(plane)
        if item["metadata"]["labels"][JOB_LABEL] in run.acked
        and not any(c["type"] in {"Complete", "Failed"} for c in item["status"].get("conditions", []))
    ]


def _proofs(stand: Stand) -> list[str]:
    """What the gateway's own proofs of its ledger and its audit trail find."""
    found = []
    for command in ("prove_ledger", "verify_audit"):
        try:
            stand.gateway.manage(command)
        except AssertionError as failure:
            found.append(str(failure))
    return found


class WrongClocks:
    """When the clock of which cluster was wrong."""

    def __init__(self, happened: Sequence[Happened]) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for one in happened:
            if one.planned.way == "a cluster's clock is wrong" and one.began_at and one.healed_at:
                span = (one.began_at - NOTICED_SECONDS, one.healed_at + NOTICED_SECONDS)
                self._spans[one.planned.cluster].append(span)

    def slack_ms(self, pod: SeenPod) -> int:
        """By how much the pod's time may be wrong: a minute if its cluster's clock was wrong while it ran."""
        if pod.started_at is None:
            return 0
        began = pod.started_at.timestamp()
        ended = pod.finished_at.timestamp() if pod.finished_at else began
        is_beside = any(began <= until and since <= ended for since, until in self._spans[pod.cluster])
        return WRONG_CLOCK_SECONDS * 1000 if is_beside else 0


def accelerating(sizes: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Tables with history that take more and more room for a job."""
    found = {table: accelerates(each, HISTORY_FACTOR, HISTORY_SLACK_BYTES) for table, each in sizes.items()}
    return [f"{table} {why}" for table, why in sorted(found.items()) if why]


def _ended_rightly(stage: Stage, outcome: Outcome) -> set[str]:
    """Tags of jobs that succeeded, and of which no finding speaks."""
    wrong = " ".join(outcome.findings)
    told = {job["id"]: job["state"] for job in stage.stand.gateway.items("/jobs") if job["state"] in ENDED_STATES}
    acked = stage.clients.run.acked.items()
    return {tag for job_id, tag in acked if told.get(job_id) == "succeeded" and job_id not in wrong}


def survival(happened: Sequence[Happened], ended_rightly: set[str]) -> tuple[dict[str, bool], list[str]]:
    """Which of the planned faults were survived: each that had an effect was healed, and the job sent after it ended rightly.

    The sentences say why others were not.
    """
    planned = {one.planned.fault for one in happened}
    effective = [one for one in happened if one.had_effect]
    wrong = [one for one in happened if one.failure or (one.had_effect and one.probe not in ended_rightly)]
    failed = {one.planned.fault for one in wrong}
    survived = {
        fault: any(one.planned.fault == fault for one in effective) and fault not in failed
        for fault in FAULTS
        if fault in planned
    }
    sentences = [f"{one.planned}: {one.failure or f'{one.probe}, sent after it, did not end rightly'}" for one in wrong]
    return survived, sentences + [
        f"{fault}: it never had an effect"
        for fault, is_survived in survived.items()
        if not is_survived and fault not in failed
    ]
