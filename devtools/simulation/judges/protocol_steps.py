"""The steps of the dispatch protocol in a run, job by job, for the protocol model: `devtools/model` decides whether it takes
them (docs/explanation/the-protocol-model.md, "Steps of simulated runs").

A step says what it changes of what the model knows: a job, its attempts, their objects and runs on the clusters, the
standstill, and who answers at addresses. Attempts have numbers in the order in which they were made, clusters those of
`stage.CLUSTERS` from 1, and objects of one name numbers in the order in which they were made, from 1. What a transaction
changed is one step. What the model does not know ends the steps of a job with the reason (`leaves`).
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.setting.stage import CLUSTERS
from federation.engine.in_part import IN_PART
from federation.engine.names import LABEL_ATTEMPT
from placement.values.reason_codes import ReasonCode

from .steps import Noted

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MOST_ATTEMPTS = 6
"""As many names as the model has."""
STOPS = {
    ReasonCode.CANCELLED: "cancel",
    ReasonCode.DID_NOT_START: "recall",
    ReasonCode.CLUSTER_DRAINING: "recall",
    ReasonCode.MAINTENANCE_AHEAD: "recall",
    ReasonCode.CANNOT_START: "recall",
    ReasonCode.REFUSED_BY_CLUSTER: "refused",
}
"""The model's names of reasons to stop. All others are a `cause`."""
RETURNED = ("preempted", "abandoned", "lost")
ROWS = """
SELECT number, (extract(epoch FROM at) * 1000000)::bigint, transaction, actor, what, found FROM simulation.steps ORDER BY number
"""
CLUSTER_NAMES = "SELECT id::text, name FROM clusters_cluster"


@dataclass(frozen=True, slots=True)
class Change:
    """What a transaction left in one row."""

    number: int
    at_us: int
    transaction: str
    actor: str
    what: str
    found: Mapping[str, Any]


@dataclass(slots=True)
class Run:
    """Everything that steps are made of."""

    began_us: int
    clusters: Mapping[str, int]
    """The numbers of clusters by id."""
    changes: list[Change]
    noted: list[Noted]


@dataclass(slots=True)
class _Attempt:
    number: int
    row: dict[str, Any] = field(default_factory=lambda: {"state": "free", "stop": "none", "uid": 0, "settled": False})
    token: int = 0
    object_name: str = ""
    is_ordered: bool = False
    """Whether its pods have gates, which are opened in an order."""


def write_steps(world: "World", path: Path) -> None:
    """One line of JSON for each step."""
    clusters = {id_: CLUSTERS.index(name) + 1 for id_, name in world.watch.rows(CLUSTER_NAMES)}
    changes = [Change(*row) for row in world.watch.rows(ROWS)]
    run = Run(world.scheduler.began_us, clusters, changes, world.steps.noted)
    with path.open("w", encoding="utf-8") as out:
        for step in steps_of(run):
            out.write(json.dumps(step) + "\n")


def steps_of(run: Run) -> Iterator[dict[str, Any]]:
    """The steps of each job."""
    jobs = {change.found["id"]: change.found["name"] for change in run.changes if change.what == "federation_job"}
    for id_, name in jobs.items():
        yield from _Projection(run, id_, f"{name} {id_[-4:]}").steps()


class _Leaves(Exception):
    """The job does something that the model does not know."""


class _Projection:
    """The steps of one job."""

    def __init__(self, run: Run, job_id: str, name: str) -> None:
        self._run = run
        self._job_id = job_id
        self._name = name
        self._job_state = ""
        self._is_elastic = False
        self._about: list[str] = []
        """What the step is about beside its changes: it is counted, and judges nothing."""
        self._attempts: dict[str, _Attempt] = {}
        self._visits: dict[tuple[str, str], int] = {}
        """The claim that an actor made last, by the actor and the attempt."""
        self._uids: dict[str, dict[str, int]] = defaultdict(dict)
        """The numbers of uids by the object's name."""
        self._shown: dict[tuple[str, str], dict[str, Any]] = {}
        """What was said of objects, by the name and the field."""
        self._runs = _runs(run.noted)
        self._phases: dict[str, str] = {}
        self._running: dict[str, bool] = defaultdict(bool)
        self._foreign: dict[str, bool] = {}
        """Objects that are not ours by uid: whether they were made to run."""
        self._elsewhere: set[int] = set()
        self._standstill = False

    def steps(self) -> Iterator[dict[str, Any]]:
        """One after the other, until the job leaves the model."""
        try:
            for moment in self._moments():
                if isinstance(moment, Noted):
                    yield from self._of_noted(moment)
                else:
                    yield from self._of_transaction(moment)
        except _Leaves as leaves:
            yield {"job": self._name, "kind": "leaves", "what": str(leaves)}

    def _moments(self) -> Iterator[Noted | list[Change]]:
        """Transactions at their last change, and what happened between them."""
        by_transaction: dict[str, list[Change]] = defaultdict(list)
        for change in self._run.changes:
            by_transaction[change.transaction].append(change)
        mixed: list[tuple[int, int, Noted | list[Change]]] = [
            (changes[-1].number, 0, changes) for changes in by_transaction.values()
        ]
        mixed += [(noted.number, order, noted) for order, noted in enumerate(self._run.noted, 1)]
        for _, _, moment in sorted(mixed, key=lambda one: one[:2]):
            yield moment

    # -- rows -------------------------------------------------------------------------------------------------------

    def _of_transaction(self, changes: list[Change]) -> Iterator[dict[str, Any]]:
        last = changes[-1]
        if last.what == "federation_standstill":
            yield from self._close_or_open(last)
            return
        parts: dict[str, Any] = {}
        words: list[str] = []
        claimed = self._read(changes, parts, words)
        _rename_returned(parts)
        for id_ in sorted(claimed):
            attempt = self._attempts[id_]
            self._visits[last.actor, id_] = attempt.token
            yield self._step(last.at_us, "claim", f"{last.actor} claims attempt {attempt.number}") | {
                "attempt": attempt.number, "visit": attempt.token,
            }  # fmt: skip
        if parts:
            numbers = parts.get("attempts", {})
            changed = [id_ for id_, attempt in self._attempts.items() if str(attempt.number) in numbers]
            visits = [visit for id_ in changed if (visit := self._visits.get((last.actor, id_)))]
            step = self._step(last.at_us, "database", f"{last.actor}: {'; '.join(words)}", parts)
            step |= {"about": self._about} if self._about else {}
            yield step | ({"visit": visits[0]} if visits else {})

    def _read(self, changes: list[Change], parts: dict[str, Any], words: list[str]) -> set[str]:
        """Adds what the changes make of this job; the attempts that were claimed."""
        claimed: set[str] = set()
        self._about = []
        for change in changes:
            found = change.found
            if change.what == "federation_job" and found["id"] == self._job_id:
                self._is_elastic = "elastic" in found["spec"]
                self._set_job(found["state"], parts, words)
            elif change.what == "federation_attempt" and found["job_id"] == self._job_id:
                if self._is_claim(found):
                    claimed.add(found["id"])
                self._set_attempt(found, parts, words)
            elif change.what == "federation_remoteobject" and found["attempt_id"] in self._attempts:
                self._set_object(found, parts, words)
        return claimed

    def _close_or_open(self, change: Change) -> Iterator[dict[str, Any]]:
        is_closed = change.found["ended_at"] is None
        if is_closed != self._standstill and self._job_state:
            self._standstill = is_closed
            yield self._step(
                change.at_us, "database", f"dispatch is {'closed' if is_closed else 'open'}", {"standstill": is_closed}
            )
        self._standstill = is_closed

    def _set_job(self, state: str, parts: dict[str, Any], words: list[str]) -> None:
        if not self._job_state:
            parts["standstill"] = self._standstill
            parts["elsewhere"] = sorted(self._elsewhere)
        if state != self._job_state:
            words.append(f"job {self._job_state} → {state}")
            self._job_state = parts["job"] = state

    def _is_claim(self, found: Mapping[str, Any]) -> bool:
        attempt = self._attempts.get(found["id"])
        return attempt is not None and attempt.token != found["claim_token"]

    def _set_attempt(
        self, found: Mapping[str, Any], parts: dict[str, Any], words: list[str], *, is_restored: bool = False
    ) -> None:
        attempt = self._attempts.get(found["id"])
        if attempt is None:
            if len(self._attempts) == MOST_ATTEMPTS:
                raise _Leaves("more attempts than the model has names")
            attempt = self._attempts[found["id"]] = _Attempt(len(self._attempts))
            self._about += ["again"] if attempt.number else []
            self._about += ["elastic"] if self._is_elastic else []
        attempt.token = found["claim_token"]
        if attempt.row["settled"] and found["settled_at"] is None and not is_restored:
            raise _Leaves("its settlement is reopened")
        if found["stop_reason"] in IN_PART and attempt.row["stop"] == "none":
            raise _Leaves("only a part of it started")  # a recall of what runs, which its pods may refute
        is_stopping = found["stop_requested_at"] is not None
        if attempt.is_ordered and found["released_at"] and found["stop_reason"] == ReasonCode.REFUSED_BY_CLUSTER:
            raise _Leaves("the gates of its pods may not be opened")
        row = {
            "state": found["state"],
            "stop": STOPS.get(found["stop_reason"], "cause") if is_stopping else "none",
            "uid": attempt.row["uid"],
            "settled": found["settled_at"] is not None,
            "cluster": self._run.clusters[found["cluster_id"]],
        }
        if is_stopping and attempt.row["stop"] == "none":
            self._about.append(found["stop_reason"])
        self._change(attempt, row, parts, words)

    def _set_object(self, found: Mapping[str, Any], parts: dict[str, Any], words: list[str]) -> None:
        attempt = self._attempts[found["attempt_id"]]
        if found["position"]:
            raise _Leaves("a gang of several objects")
        attempt.object_name, attempt.is_ordered = found["name"], bool(found["stretches"])
        if found["uid"]:
            number = self._uids[found["name"]].get(found["uid"])
            if number is None:
                raise _Leaves("a cluster answered with another object's uid")
            self._change(attempt, attempt.row | {"uid": number}, parts, words)

    def _change(self, attempt: _Attempt, row: dict[str, Any], parts: dict[str, Any], words: list[str]) -> None:
        changed = {name: value for name, value in row.items() if value != attempt.row.get(name)}
        attempt.row = row
        if changed:
            parts.setdefault("attempts", {}).setdefault(str(attempt.number), {}).update(changed)
            words.append(f"attempt {attempt.number} {', '.join(f'{name} {value}' for name, value in changed.items())}")

    # -- clusters and the database as a whole -----------------------------------------------------------------------

    def _of_noted(self, noted: Noted) -> Iterator[dict[str, Any]]:
        match noted.kind:
            case "object":
                yield from self._of_object(noted)
            case "run":
                yield from self._of_run(noted)
            case "address":
                yield from self._of_address(noted)
            case "backup" if self._job_state and self._is_used(noted):
                yield self._step(noted.at_us, "backup", "the database is backed up")
            case "restore":
                yield from self._of_restore(noted)
            case "control plane restored":
                self._compare(noted)

    def _name_of(self, name: str) -> _Attempt | None:
        return next((one for one in self._attempts.values() if one.object_name == name), None)

    def _of_object(self, noted: Noted) -> Iterator[dict[str, Any]]:
        found = noted.found
        attempt = self._name_of(found["name"])
        if attempt is None:
            return
        uid, numbers = found["uid"], self._uids[found["name"]]
        if uid not in numbers:
            numbers[uid] = len(numbers) + 1
            is_ours = LABEL_ATTEMPT in found["labels"] and attempt is self._attempts.get(found["labels"][LABEL_ATTEMPT])
            if not is_ours:
                self._foreign[uid] = found["phase"] == "active"
        self._phases[uid] = found["phase"]
        yield from self._show(noted, attempt, uid)

    def _of_run(self, noted: Noted) -> Iterator[dict[str, Any]]:
        uid = noted.found["uid"]
        attempt = next((one for one in self._attempts.values() if uid in self._uids[one.object_name]), None)
        if attempt is None or uid in self._foreign or noted not in self._runs[uid]:
            return
        self._running[uid] = noted is self._runs[uid][0]
        yield from self._show(noted, attempt, uid)

    def _show(self, noted: Noted, attempt: _Attempt, uid: str) -> Iterator[dict[str, Any]]:
        """What is new of an object and its runs."""
        number = self._uids[attempt.object_name][uid]
        phase = self._phases[uid]
        if uid in self._foreign and phase in ("active", "suspended"):
            phase = "suspended" if self._foreign[uid] else phase
        if phase == "deleting" and not self._running[uid]:
            phase = "absent"
        where = "there" if noted.is_elsewhere else "here"
        thing: dict[str, Any] = {"phase": "absent"} if phase == "absent" else {"phase": phase, "uid": number}
        if uid in self._foreign and phase != "absent":
            thing["foreign"] = True
        running = sorted(number for other, number in self._uids[attempt.object_name].items() if self._running[other])
        changed: dict[str, Any] = {}
        for part, value in ((where, thing), ("runs", running)):
            key = (attempt.object_name, part)
            if value != self._shown.get(key, {"phase": "absent"} if part != "runs" else []):
                if part == where and thing["phase"] == "absent" and self._shown[key]["uid"] != number:
                    continue  # another has its name already
                self._shown[key] = changed[part] = value  # type: ignore[assignment]
        if changed:
            words = f"{noted.cluster}{' (another)' if noted.is_elsewhere else ''}: attempt {attempt.number}, object {number}"
            told = ", ".join(f"{name} {value}" for name, value in changed.items())
            yield self._step(noted.at_us, "cluster", f"{words}: {told}", {"objects": {str(attempt.number): changed}})

    def _of_address(self, noted: Noted) -> Iterator[dict[str, Any]]:
        number = CLUSTERS.index(noted.cluster) + 1
        (self._elsewhere.add if noted.is_elsewhere else self._elsewhere.discard)(number)
        if self._job_state:
            told = "is another cluster" if noted.is_elsewhere else "is itself again"
            yield self._step(noted.at_us, "address", f"{noted.cluster} {told}", {"elsewhere": sorted(self._elsewhere)})

    def _is_used(self, backup: Noted) -> bool:
        """Whether the database is put back to this backup."""
        later = self._run.noted[self._run.noted.index(backup) + 1 :]
        return next((one.kind for one in later if one.kind in ("backup", "restore")), "") == "restore"

    def _of_restore(self, noted: Noted) -> Iterator[dict[str, Any]]:
        self._standstill = True
        if not self._job_state:
            return
        rows = noted.found["rows"]
        job = next((row for row in rows if row["what"] == "federation_job" and row["id"] == self._job_id), None)
        if job is None:
            raise _Leaves("it was forgotten with the database")
        parts: dict[str, Any] = {"standstill": True}
        words = ["the database is put back"]
        self._set_job(job["state"], parts, words)
        objects = {row["attempt_id"]: row for row in rows if row["what"] == "federation_remoteobject"}
        known = {row["id"]: row for row in rows if row["what"] == "federation_attempt"}
        self._visits.clear()
        for id_, attempt in self._attempts.items():
            row = known.get(id_)
            if row is None:
                free = {"state": "free", "stop": "none", "uid": 0, "settled": False, "cluster": attempt.row["cluster"]}
                self._change(attempt, free, parts, words)
                continue
            self._set_attempt(row, parts, words, is_restored=True)
            uid = self._uids[attempt.object_name].get(objects[id_]["uid"], 0)
            self._change(attempt, attempt.row | {"uid": uid}, parts, words)
        yield self._step(noted.at_us, "restore", "; ".join(words), parts)

    def _compare(self, noted: Noted) -> None:
        """A control plane that was put back, and that now shows another past of this job, is not modelled."""
        now = {job["uid"]: job["phase"] for job in noted.found["jobs"]}
        for name, part in list(self._shown):
            if part == "runs" or self._name_of(name) is None:
                continue
            home = CLUSTERS.index(noted.cluster) + 1
            attempt = self._name_of(name)
            assert attempt is not None
            if attempt.row.get("cluster") == home and any(
                now.get(uid, "absent") != self._phases[uid] for uid in self._uids[name]
            ):
                raise _Leaves("the control plane of its cluster is put back")

    def _step(self, at_us: int, kind: str, what: str, parts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        at = (at_us - self._run.began_us) / MICROSECONDS
        return {"job": self._name, "at": at, "kind": kind, "what": what, "set": parts or {}}


def _runs(noted: list[Noted]) -> dict[str, list[Noted]]:
    """By the uid of a Job, when its first pod began to run and when the last one ended: what is between counts as one run."""
    found: dict[str, list[Noted]] = defaultdict(list)
    for one in noted:
        if one.kind == "run":
            found[one.found["uid"]].append(one)
    return {uid: [every[0], every[-1]] if every[-1].found["more"] < 0 else every[:1] for uid, every in found.items()}


def _rename_returned(parts: dict[str, Any]) -> None:
    """An attempt that failed, and whose job is retried, is `preempted`: the model has one name for all that return a job."""
    attempts = parts.get("attempts", {}).values()
    if parts.get("job") == "failed" and any(part.get("state") in RETURNED for part in attempts):
        raise _Leaves("it is given up after refusals")
    if parts.get("job") in ("queued", "suspended"):
        for part in attempts:
            part.update({"state": "preempted"} if part.get("state") == "failed" else {})
