"""Requests for many jobs: some cannot be, some come twice, and a limit may allow fewer than are asked for."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.db import Error, close_old_connections

from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.core.history import Asked
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import TEAMS, user
from federation import operations
from federation.models import Job
from foundation.problems import Problem
from tenancy.operations import Answer

from . import submission_limits

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

LIMITED = 0.6
"""The share of the requests before which the team's submissions are limited."""
LIMITS: tuple[tuple[int | None, int | None], ...] = ((0, None), (1, None), (2, None), (None, 1), (None, 2), (1, 4))
"""Of waiting jobs, and of jobs a minute."""
TRIES, PAUSE_SECONDS = 6, (0.5, 15.0)
HOOK_FAILED = 503
GONE = frozenset({"not_found", "permission_denied"})
CHANGES = "SELECT count(*) FROM tenancy_auditentry WHERE action LIKE 'tenant.%%' OR action LIKE 'role.%%'"
FIRST, WITHOUT_KEY, AGAIN, OTHER_BODY = range(4)
"""The positions of the items that may become jobs: three of them have the same key."""


def ask_for_many(world: "World") -> None:
    """A user of a team asks for several jobs in one request, after its submissions were limited, or not."""
    team = TEAMS[world.faults.choose(TEAMS)]
    who = ("ada", "ben")[world.faults.choose(range(2))]
    waiting, rate = LIMITS[world.faults.choose(LIMITS)]
    if world.faults.between(0, 1) < LIMITED:
        world.wish(
            f"limits what {team} submits to {waiting} waiting, {rate} a minute",
            lambda: submission_limits.put(world, team.rpartition("/")[2], waiting, rate),
            "submission_limit.put",
        )
    web, name = world.processes["web"], f"bulk-{world.faults.count}"
    if not web.is_dead:
        delay = world.faults.between(1, 6)
        world.machine.start(web, name, lambda: _Request(world, name, team, who).send_all(delay))


class _Request:
    """One request, and how it is repeated."""

    def __init__(self, world: "World", name: str, team: str, who: str) -> None:
        self._world, self._name, self._who = world, name, who
        self._body: dict[str, Any] = {"tenant": team, "jobs": self._items()}

    def _items(self) -> list[Any]:
        pod = {
            "name": "main",
            "count": 1,
            "image": "registry.example/train:1",
            "cpu": "1",
            "memory": "1Gi",
            "gpu": {"count": 1},
        }
        first: dict[str, Any] = {
            "name": f"{self._name}-first", "pod_sets": [pod], "deadline_seconds": 300,
            "labels": {RUN_SECONDS: "2", EXIT_CODE: "0"}, "idempotency_key": f"{self._name}-key",
        }  # fmt: skip
        keyless = {name: value for name, value in first.items() if name != "idempotency_key"}
        huge = keyless | {"name": "huge", "pod_sets": [pod | {"gpu": {"count": 8}}]}
        return [
            first,
            keyless | {"name": f"{self._name}-second"},
            first,
            first | {"name": f"{self._name}-third"},
            first | {"idempotency_key": ""},
            "no job",
            keyless | {"tenant": "acme/nobody"},
            huge,
            huge,
        ]

    def send_all(self, delay: float) -> None:
        """Sends it until the answer is known, then again, with another body, and its first job alone."""
        self._world.scheduler.sleep(delay)
        restores, changes = len(self._world.lost_commits.spans), self._changes()
        answer = self._until_answered(self._body, f"{self._name}-all")
        if answer is None:
            return
        again = self._until_answered(self._body, f"{self._name}-all")
        other = self._until_answered(
            self._body | {"jobs": self._body["jobs"][:2]}, f"{self._name}-all", "idempotency_key_reused"
        )
        alone = self._until_answered(self._body | {"jobs": self._body["jobs"][:1]}, "")
        if len(self._world.lost_commits.spans) > restores:
            return  # what it was answered may be forgotten
        if again is not None and again.body != answer.body:
            self._complain(f"was answered {answer.body}, and then {again.body}")
        if other is not None:
            self._complain(f"has another body under its key, and is answered {other.body}")
        first = answer.body["items"][FIRST].get("job")
        if alone is None or first is None or alone.body["items"][0].get("job") == first:
            return
        if is_gone(alone.body["items"][0]) and self._changes() != changes:
            return  # its team has moved, or its user has no role there any more
        self._complain(f"made {first}, and its first item again is answered {alone.body}")

    def _changes(self) -> list[tuple[Any, ...]]:
        """How often tenants and roles were changed."""
        return self._world.watch.rows(CHANGES)

    def _until_answered(self, body: dict[str, Any], key: str, refusal: str = "") -> Answer | None:
        """The answer; None if it is refused (with this code, if there is one), or never known."""
        for _ in range(TRIES):
            close_old_connections()
            asked_us = self._world.scheduler.now_us
            raw = json.dumps(body).encode()
            try:
                answer = operations.submit_jobs(user(self._who), body, show=_shown, tell=_told, key=key, raw=raw)
            except Problem as problem:
                self._world.tell(self._who, f"is refused {self._name}: {problem.code}: {problem}")
                if problem.status not in (409, 429, 503):
                    if problem.status >= 500 or (refusal and problem.code != refusal):
                        self._complain(f"is answered {problem.code}: {problem}")
                    return None
            except Error as error:
                self._world.tell(self._who, f"never learns of {self._name}: {type(error).__name__}")
                self._note_unknown(asked_us)
            else:
                self._check(answer, len(body["jobs"]))
                self._note(answer, asked_us)
                return answer
            self._world.scheduler.sleep(self._world.faults.between(*PAUSE_SECONDS))
        return None

    def _check(self, answer: Answer, count: int) -> None:
        """Each item has an answer; those that cannot be have none with a job, and items under one key have one job."""
        items = answer.body["items"]
        if [one["index"] for one in items] != list(range(count)) or any(
            ("job" in one) == ("problem" in one) for one in items
        ):
            self._complain(f"of {count} items is answered {items}")
        if any("job" in one for one in items[OTHER_BODY + 1 :]):
            self._complain(f"has a job that cannot be: {items}")
        of_key = [items[at] for at in (FIRST, AGAIN, OTHER_BODY) if at < count]
        if len({one["job"]["id"] for one in of_key if "job" in one}) > 1:
            self._complain(f"made several jobs under one key: {items}")
        if any(
            "problem" in one and one["problem"]["status"] >= 500 and one["problem"]["status"] != HOOK_FAILED
            for one in items
        ):
            self._complain(f"has an item that failed: {items}")

    def _note(self, answer: Answer, asked_us: int) -> None:
        """What was acknowledged, for the judges of submissions."""
        for at, one in enumerate(answer.body["items"][: OTHER_BODY + 1]):
            if "job" in one:
                self._asked(at, asked_us, "ok", one["job"]["id"])

    def _note_unknown(self, asked_us: int) -> None:
        for at in (FIRST, WITHOUT_KEY):
            self._asked(at, asked_us, "unknown", None)

    def _asked(self, at: int, asked_us: int, answer: str, told: str | None) -> None:
        subject = f"{self._name}-second" if at == WITHOUT_KEY else f"{self._name}-key"
        now_us = self._world.scheduler.now_us
        self._world.history.asked.append(
            Asked(self._who, "submit", subject, asked_us, now_us, answer, told, replayed=None)
        )

    def _complain(self, words: str) -> None:
        self._world.machine.unexpected.append(f"the request {self._name} {words}")


def is_gone(item: Mapping[str, Any]) -> bool:
    """Whether the answer to it is that there is no such tenant, or that its user may not submit there."""
    return "problem" in item and item["problem"]["code"] in GONE


def _shown(job: Job) -> dict[str, Any]:
    return {"id": str(job.id)}


def _told(problem: Problem) -> dict[str, Any]:
    return {"code": problem.code, "status": problem.status}


@judging
def promise_22_each_job_of_a_bulk_request_is_audited_once(world: "World") -> list[str]:
    """Of the jobs that exist, each has one entry of its submission, whatever request it came with."""
    return [f"the submission of {id_} has {count} entries" for id_, count in world.watch.rows(ENTRIES)]


ENTRIES = """
SELECT job.id, count(entry.id)
  FROM federation_job AS job
  LEFT JOIN tenancy_auditentry AS entry
    ON entry.action = 'job.submit' AND entry.object_id = job.id::text
    OR entry.action = 'job.submit_many' AND entry.detail -> 'jobs' ? job.id::text
 GROUP BY job.id HAVING count(entry.id) <> 1 ORDER BY 1
"""


EVENTS: dict[str, Callable[["World"], None]] = {"bulk_asked": ask_for_many}
"""By the kind of fault."""
