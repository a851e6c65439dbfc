"""What clients do: each submits a job until it knows that it exists, and may move it, suspend and resume it, or cancel it and submit
it again.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import Error, close_old_connections

from devtools.simulation.clusters.cluster import ENDING, EXIT_CODE, RUN_SECONDS
from devtools.simulation.core.history import Asked
from devtools.simulation.core.swarm import Swarm
from devtools.simulation.setting.stage import SHIELD_SECONDS, TEAMS, user
from federation import operations
from federation.models import Job
from foundation.problems import Problem

from .moves import make_willing, wanted_move
from .waiting_stops import asks_again, cancels_instead, wait_of, wanted_suspension

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

LONG_SECONDS = 900
LONGEST_BEFORE = 20.0
"""How long a client waits at most before it submits its job, in a whole world."""
CROWDS = 0.1
"""The share of the worlds with more and smaller jobs, so that one cluster has several at the same time."""
CROWDS_EMPTIED = 0.5
"""The same where a cluster loses all its Jobs: of many it is doubted that they are gone. Each of them has two objects."""
CROWD = 6
BULK = 0.25
"""The share of the jobs that are submitted with others in one request."""
BESIDE = 0.25
"""The share of the jobs that have init steps and sidecars."""
RULED = 0.25
"""The share of the jobs that have failure rules."""
AGAIN = 0.5
"""The share of the cancelled jobs that are submitted again under another name."""

SUSPENDED = 0.15
"""The share of the jobs that their clients suspend and resume."""
MOVED = 0.2
"""The share of the jobs that their clients move away from the cluster on which they run."""
NOT_MOVED = frozenset({"state_conflict", "no_place_to_move", "validation_failed"})
"""The last one: it runs already on the cluster that is named, or that was removed."""
MOVE_TIMES, MOVE_SECONDS, MOVE_POLLS = 4, 5.0, 15

OTHERS_RUN = "SELECT FROM federation_job WHERE state = 'running' AND priority < 100 LIMIT 1"
LATE_POLLS, LATE_POLL_SECONDS = 18, 5.0
RUSHES = 0.3
"""The share of the worlds in which the last job is urgent and large, comes late, and finds the others running for long."""


@dataclass(slots=True)
class Submission:
    """A job that a client wants."""

    key: str
    client: str
    body: dict[str, Any]
    cancel_after: float | None
    is_bulk: bool = False
    is_wanted_again: bool = False
    """Whether the client submits the job again when its cancellation was acknowledged."""
    suspend_after: float | None = None
    """In seconds after the client knows its job."""
    suspended_for: float = 0.0
    is_moved: bool = False
    """Whether the client asks a few times to move it."""
    is_late: bool = False
    """Whether the client submits it only when a less urgent job has started, if one does in time."""
    is_suspended: bool = False
    """Whether a suspension was acknowledged."""
    is_resumed: bool = False
    """Whether its resumption was acknowledged, or is not needed any more."""
    job_id: str = ""
    is_refused: bool = False
    is_cancelled: bool = False
    """Whether a cancellation was acknowledged."""

    @property
    def number(self) -> int:
        """Its number in the plan."""
        return int(self.key.split("-")[1])


def plan(
    seed: int, wanted: tuple[int, ...], swarm: Swarm, *, is_emptied: bool = False, is_ordered: bool = False
) -> list[Submission]:
    """The jobs of a world; only those with these numbers if there are any. `is_emptied`: whether a cluster loses all Jobs.
    `is_ordered`: whether the first is a gang that needs several nodes, whose pods have an order if these are in racks.
    """
    chance, more = random.Random(f"{seed}/plan"), random.Random(f"{seed}/more")
    ruled, suspends = random.Random(f"{seed}/ruled"), random.Random(f"{seed}/suspends")
    beside, moves = random.Random(f"{seed}/beside"), random.Random(f"{seed}/moves")
    willing, here = random.Random(f"{seed}/willing"), random.Random(f"{seed}/here")
    count = chance.randint(2, 4)
    crowds = CROWDS_EMPTIED if is_emptied else CROWDS
    is_crowd = random.Random(f"{seed}/crowd").random() < crowds and not swarm.rates
    if is_crowd:
        count = CROWD
    rush = random.Random(f"{seed}/rush")
    is_rush = rush.random() < RUSHES and not swarm.rates
    found = []
    for number in range(count):
        pod = {
            "name": "main", "count": chance.choice((1, 1, 2)), "image": "registry.example/train:1", "cpu": "1",
            "memory": "1Gi", "gpu": {"count": chance.choice((1, 2, 4))},
        }  # fmt: skip
        pod_sets = [pod] if chance.random() < 1 - swarm.gangs else [pod, pod | {"name": "side", "count": 1}]
        cancel = chance.uniform(0, swarm.cancelled_within) if chance.random() < swarm.cancels else None
        usual = (1, 5, 20, 60, LONG_SECONDS if cancel else 200)
        labels = {
            RUN_SECONDS: str(chance.choice(swarm.run_seconds or usual)),
            "sim.switchyard.dev/exit-code": str(chance.choice((0, 0, 0, 3))),
        }
        body = {
            "tenant": chance.choice(TEAMS), "name": f"job-{number}", "pod_sets": pod_sets, "labels": labels,
            "deadline_seconds": chance.choice((300, 1000)), **_more(more, pod_sets),
        }  # fmt: skip
        if ruled.random() < RULED:
            _add_rules(ruled, body)
            _add_rule_of_place(here, body)
        if beside.random() < BESIDE and not swarm.rates:
            pod |= _beside(beside)
        client = chance.choice(("ada", "ben"))
        submission = Submission(
            f"key-{number}", client, body, cancel, more.random() < BULK, cancel is not None and more.random() < AGAIN
        )
        if not swarm.rates:
            _interrupt(submission, suspends, moves)
            make_willing(body, willing)
        if is_crowd:
            _make_small(body, pod, is_split=is_emptied)
        elif is_ordered and number == 0:
            # One set of pods, of the team that may borrow enough: else the job is refused for good.
            pod |= {"count": 2, "gpu": {"count": 4}}
            body |= {"tenant": TEAMS[0], "pod_sets": [pod]}
            body.pop("completions", None)
        if is_rush and not (is_ordered and number == 0):
            _hurry(rush, submission, is_last=number == count - 1)
        if not wanted or number in wanted:
            found.append(submission)
    return found


def _interrupt(submission: Submission, suspends: random.Random, moves: random.Random) -> None:
    """Has its user suspend or move it, perhaps."""
    if suspends.random() < SUSPENDED:
        submission.suspend_after, submission.suspended_for = suspends.uniform(0, 60), suspends.uniform(0, 40)
    submission.is_moved = moves.random() < MOVED


def _make_small(body: dict[str, Any], pod: dict[str, Any], *, is_split: bool) -> None:
    """Makes a job small. If it is split, it has two pod sets, and runs for long."""
    pod |= {"count": 1, "gpu": {"count": 1}}
    if is_split:
        body["pod_sets"] = [pod, pod | {"name": "side"}]
        body["labels"] |= {RUN_SECONDS: "200"}
        body.pop("completions", None)


def _beside(chance: random.Random) -> dict[str, Any]:
    """Init steps and a sidecar of a pod set."""
    sidecar = {"name": "logs", "image": "registry.example/logs:1", "cpu": "500m", "memory": "64Mi"}
    steps = [{"image": "registry.example/fetch:1"}] * chance.choice((0, 1, 2))
    return {"init": steps, "sidecars": [sidecar] * chance.choice((0, 1))}


def _hurry(chance: random.Random, one: Submission, *, is_last: bool) -> None:
    """Makes the last job urgent and the others long, all so large that few of them fit in the limit at the same time."""
    one.body["tenant"] = TEAMS[1]
    one.body["pod_sets"][0] |= {"count": 2, "gpu": {"count": chance.choice((2, 4, 4))}}
    one.body.pop("completions", None)
    if is_last:
        one.body["priority_class"] = "high"
        one.is_late = True
    else:
        one.body["priority_class"] = chance.choice(("low", "normal"))
        one.cancel_after, one.suspend_after, one.is_wanted_again = None, None, False
        one.body["labels"] |= {RUN_SECONDS: str(chance.choice((60, 200, 200)))}


def _add_rules(chance: random.Random, body: dict[str, Any]) -> None:
    """Rules for its failures, and some way to fail."""
    rules: tuple[dict[str, Any], ...] = (
        {"name": "log", "when": {"log": ["ended with exit code 3"]}, "then": "again", "retries": 2},
        {"name": "silent", "when": {"log": ["no program writes this"]}, "then": "again"},
        {"name": "later", "then": "again", "retries": 1, "backoff": {"seconds": 20}},
        {"name": "node", "then": "again_elsewhere", "retries": 2, "avoid": {"what": "node", "seconds": 60}},
        {"name": "cluster", "then": "again_elsewhere", "retries": 1, "avoid": {"what": "cluster", "seconds": 60}},
        {"name": "stop", "when": {"seen": ["preempted", "node_lost", "image"]}, "then": "stop"},
        {"name": "memory", "when": {"seen": ["out_of_memory"]}, "then": "more_memory", "memory": {"most": "2Gi"}},
    )
    body["failure_rules"] = chance.sample(rules, chance.choice((1, 2, 3)))
    if any(rule["name"] == "memory" for rule in body["failure_rules"]):
        body["labels"] |= {EXIT_CODE: "137", ENDING: "OOMKilled"}


def _add_rule_of_place(chance: random.Random, body: dict[str, Any]) -> None:
    """Behind the others, a rule that keeps the place, in a quarter of the jobs with rules."""
    if chance.random() < 0.25:
        wait = chance.choice((0, 20))
        body["failure_rules"].append(
            {"name": "here", "then": "again_here", "retries": 1, "backoff": {"seconds": wait}, "keep_seconds": 30}
        )


def _more(chance: random.Random, pod_sets: list[Any]) -> dict[str, Any]:
    """Fields that few jobs have."""
    found: dict[str, Any] = {}
    if chance.random() < 0.2:
        found["retries"] = {"program": chance.choice((1, 2))}
    if chance.random() < 0.2:
        found["checkpoint_seconds"] = chance.choice((1, 10))
    if len(pod_sets) == 1 and chance.random() < 0.15:
        found["completions"] = pod_sets[0]["count"] + chance.choice((1, 2))
    return found


class Client:
    """A client of one job. A new web process goes on where the last one died."""

    def __init__(self, world: "World", submission: Submission) -> None:
        self._world = world
        self._faults = world.faults
        self._actor = user(submission.client)
        self._one = submission

    def want(self) -> None:
        """Submits until the client knows its job, and moves it, suspends and resumes it, or cancels it later, if it wants to."""
        while True:
            self._submit()
            self._move()
            self._suspend()
            self._cancel()
            one = self._one
            if not (one.is_wanted_again and one.is_cancelled):
                return
            one.is_wanted_again = False
            # Shorter than the first: this one is not cancelled, and must end within half an hour even if it is retried.
            labels = one.body["labels"] | {RUN_SECONDS: "60"}
            body = one.body | {"name": f"{one.body['name']}-again", "labels": labels}
            self._one = replace(
                one,
                key=f"{one.key}-again",
                body=body,
                cancel_after=None,
                suspend_after=None,
                is_moved=False,
                is_late=False,
                job_id="",
                is_cancelled=False,
            )
            self._world.submissions.append(self._one)

    def _submit(self) -> None:
        one, sleep = self._one, self._world.scheduler.sleep
        if not one.job_id and not one.is_refused:
            sleep(self._faults.between(0, self._world.scale.haste * LONGEST_BEFORE))
            self._await_others()
        while not one.job_id and not one.is_refused:
            one.body["tenant"] = self._path(one.body["tenant"])
            asked = self._ask("submit", one.key)
            try:
                job_id = self._submit_many(asked) if one.is_bulk else self._submit_one(asked)
                self._told(asked, "ok", job_id)
                one.job_id = job_id
            except Problem as problem:
                one.is_refused = problem.status not in (409, 429, 503)
                self._told(asked, "refused" if one.is_refused else "later", f"{problem.code}: {problem}")
            except Error as error:
                self._told(asked, "unknown", type(error).__name__)
            sleep(self._faults.between(0.1, 3))

    def _await_others(self) -> None:
        """Sleeps until a less urgent job runs and is not shielded any more, for a minute and a half at most."""
        for _ in range(LATE_POLLS if self._one.is_late else 0):
            if self._world.watch.rows(OTHERS_RUN):
                self._world.scheduler.sleep(SHIELD_SECONDS)
                return
            self._world.scheduler.sleep(LATE_POLL_SECONDS)

    def _path(self, path: str) -> str:
        """Where the team is now, if it was moved."""
        rows = self._world.watch.rows("SELECT path FROM tenancy_tenant WHERE name = %s", path.rpartition("/")[2])
        return str(rows[0][0]) if rows else path

    def _submit_one(self, asked: Asked) -> str:
        one = self._one
        answer = operations.submit_job(self._actor, one.body, show=_shown, key=one.key, raw=one.key.encode())
        asked.replayed = answer.replayed
        return str(answer.body["id"])

    def _submit_many(self, asked: Asked) -> str:
        """In one request with itself and a job that cannot be. Raises the problem that its item was answered."""
        one, asked.replayed = self._one, None
        spec = {name: value for name, value in one.body.items() if name != "tenant"}
        item = spec | {"idempotency_key": one.key}
        problems: list[Problem] = []
        body = {"tenant": one.body["tenant"], "jobs": [item, spec | {"pod_sets": []}, item]}
        answer = operations.submit_jobs(self._actor, body, show=_shown, tell=_collect(problems))
        first, _, again = answer.body["items"]
        if "job" not in first:
            raise problems[0]
        if again.get("job") != first["job"]:
            self._world.machine.unexpected.append(f"{one.key} twice in one request was answered {first} and {again}")
        return str(first["job"]["id"])

    def _move(self) -> None:
        """Asks to move the job until that is acknowledged, a few times: it may not run, or not fit elsewhere."""
        one, sleep = self._one, self._world.scheduler.sleep
        for turn in range(MOVE_TIMES if one.job_id and one.is_moved else 0):
            sleep(self._faults.between(0, MOVE_SECONDS))
            for _ in range(MOVE_POLLS):
                if self._world.state_of(one.job_id) != "running":
                    sleep(1)
            asked = self._ask("move", one.job_id)
            try:
                body = wanted_move(turn) | wait_of(self._world.seed, one.key, one.body)
                job = operations.request_migration(self._actor, UUID(one.job_id), body)
            except Problem as problem:
                if problem.code not in NOT_MOVED:
                    self._world.machine.unexpected.append(f"{one.key} cannot be moved: {problem.code}: {problem}")
                self._told(asked, "refused", f"{problem.code}: {problem}")
            except Error as error:
                self._told(asked, "unknown", type(error).__name__)
            else:
                self._told(asked, "ok", job.state)
                return

    def _suspend(self) -> None:
        """Suspends the job and resumes it, each until the answer is known. It may have ended meanwhile."""
        one, sleep = self._one, self._world.scheduler.sleep
        while one.job_id and one.suspend_after is not None and not one.is_suspended and not one.is_resumed:
            sleep(one.suspend_after)
            one.is_suspended = self._change("suspend", wanted_suspension(self._world, one))
        if asks_again(self._world, one):
            self._change("suspend", wanted_suspension(self._world, one, 1))
        while one.job_id and one.is_suspended and not one.is_resumed and not cancels_instead(self._world, one):
            sleep(one.suspended_for)
            one.is_resumed = self._change("resume", operations.request_resumption)

    def _change(self, what: str, request: Callable[..., Job]) -> bool:
        """Whether the request was acknowledged. A job that has ended needs none."""
        asked = self._ask(what, self._one.job_id)
        try:
            job = request(self._actor, self._one.job_id)
        except Problem as problem:
            self._one.is_resumed = problem.code == "state_conflict"
            self._told(asked, "refused", f"{problem.code}: {problem}")
        except Error as error:
            self._told(asked, "unknown", type(error).__name__)
        else:
            self._told(asked, "ok", job.state)
            return True
        return self._one.is_resumed

    def _cancel(self) -> None:
        one = self._one
        while one.job_id and one.cancel_after is not None and not one.is_cancelled:
            self._world.scheduler.sleep(one.cancel_after)
            asked = self._ask("cancel", one.job_id)
            try:
                job = operations.request_cancellation(self._actor, one.job_id)  # type: ignore[arg-type]
                one.is_cancelled = True
                self._told(asked, "ok", job.state)
            except Problem as problem:
                one.cancel_after = None
                asked.state = self._world.state_of(one.job_id)
                self._told(asked, "refused", f"{problem.code}: {problem}")
            except Error as error:
                self._told(asked, "unknown", type(error).__name__)

    def _ask(self, what: str, subject: str) -> Asked:
        close_old_connections()  # as before each request
        asked = Asked(self._one.client, what, subject, self._world.scheduler.now_us)
        self._world.history.asked.append(asked)
        self._world.tell(asked.client, f"asks to {what} {subject}")
        return asked

    def _told(self, asked: Asked, answer: str, told: Any) -> None:
        asked.to_us, asked.answer, asked.told = self._world.scheduler.now_us, answer, told
        self._world.tell(asked.client, f"is answered {answer}: {told}")


def _shown(job: Job) -> dict[str, Any]:
    return {"id": str(job.id)}


def _collect(problems: list[Problem]) -> Callable[[Problem], dict[str, Any]]:
    def tell(problem: Problem) -> dict[str, Any]:
        problems.append(problem)
        return {"code": problem.code}

    return tell
