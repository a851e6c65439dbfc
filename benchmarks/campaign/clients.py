"""The clients of a campaign: one thread that sends each job when its time has come, again until it is answered, and cancels some.

What it was answered is kept, in the form that the simulation's judges read (`devtools.simulation`).
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from devtools.simulation.core.history import Asked
from tests.faults.stand import FaultRun

from .load import Wanted

CALL_SECONDS = 5
RETRIED = {408, 409, 429}
MOST_OPEN = 80
"""Jobs under way at the same time: the host, not the gateway, is what has to keep up. Later ones wait here."""
COUNT_SECONDS = 5.0
STEP_SECONDS = 0.1


class Refused(Exception):
    """The gateway refused what it has to accept: none of the faults explains that."""


@dataclass(slots=True)
class Submission:
    """A job that a client wants, and what it knows of it."""

    key: str
    wanted: Wanted
    job_id: str = ""
    is_refused: bool = False
    is_cancelled: bool = False
    """Whether a cancellation was acknowledged."""
    cancel_at: float | None = None


@dataclass
class Clients:
    """Sends each job when its time has come. `send_all` ends it."""

    run: FaultRun
    jobs: Sequence[Wanted]
    began: float = 0.0
    asked: list[Asked] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    """Jobs of which others removed an object."""
    failure: Exception | None = None
    open_jobs: int = 0
    held_back: int = 0
    """Jobs whose time had come while too many were open."""
    _extra: deque[Wanted] = field(default_factory=deque)
    _counted_at: float = 0.0
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to send."""
        self.began = time.monotonic()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def add(self, wanted: Wanted) -> None:
        """One job more, before all others."""
        self._extra.append(wanted)

    def may_lack_pods(self, job_id: str) -> None:
        """Others remove an object of this job: what ran of it unseen has no trace."""
        self.removed.add(job_id)

    def may_end(self, job_id: str, *ends: str) -> None:
        """This job may also end so."""
        self.run.may_end[job_id] = self.run.may_end.get(job_id, frozenset({"succeeded"})) | set(ends)

    def send_all(self, seconds: float) -> None:
        """Waits until everything that was sent or is still to be cancelled is answered; raises if the thread failed."""
        self._is_over.set()
        assert self._thread is not None
        self._thread.join(seconds)
        if self.failure is not None:
            raise self.failure
        if self._thread.is_alive():
            raise Refused(f"the gateway answers no requests any more: {len(self._unanswered())} wait")

    def _go_on(self) -> None:
        waiting = deque(self.jobs)
        try:
            while not self._is_over.is_set() or self._extra or self._unanswered():
                self._take(waiting)
                with suppress(httpx.HTTPError):  # a gateway that is down is asked again
                    self._send()
                    self._cancel()
                    self._count()
                time.sleep(STEP_SECONDS)
        except Exception as failure:  # noqa: BLE001 - the main thread raises it
            self.failure = failure

    def _take(self, waiting: deque[Wanted]) -> None:
        while self._extra:
            self._expect(self._extra.popleft())
        elapsed = time.monotonic() - self.began
        while waiting and waiting[0].at <= elapsed and not self._is_over.is_set():
            if self.open_jobs + len(self._unanswered()) >= MOST_OPEN:
                self.held_back += 1
                return
            self._expect(waiting.popleft())

    def _expect(self, wanted: Wanted) -> None:
        self.submissions.append(Submission(f"{self.run.key}-{wanted.tag}", wanted))

    def _unanswered(self) -> list[Submission]:
        return [one for one in self.submissions if not one.job_id or one.cancel_at is not None]

    def _send(self) -> None:
        for one in self._unanswered():
            if one.job_id:
                continue
            answer = self._call("submit", one.key, "/jobs", one.wanted.spec, {"Idempotency-Key": one.key})
            one.job_id = str(answer["id"])
            self.asked[-1].told = one.job_id
            self.run.acked[one.job_id] = one.wanted.tag
            if one.wanted.cancel_after is not None:
                self.may_end(one.job_id, "cancelled")
                one.cancel_at = time.monotonic() + one.wanted.cancel_after

    def _cancel(self) -> None:
        for one in self._unanswered():
            if one.cancel_at is not None and one.cancel_at <= time.monotonic():
                answer = self._call("cancel", one.job_id, f"/jobs/{one.job_id}/cancel", {}, {})
                one.is_cancelled = answer.get("state") in {"cancelling", "cancelled"}
                one.cancel_at = None

    def _count(self) -> None:
        if time.monotonic() - self._counted_at > COUNT_SECONDS:
            states: dict[str, str | int] = {"limit": 500, "state": "queued,dispatching,running,cancelling"}
            answer = self.run.gateway.client.get("/api/v1/jobs", params=states, timeout=CALL_SECONDS)
            self.open_jobs = len(answer.raise_for_status().json()["items"])
            self._counted_at = time.monotonic()

    def _call(
        self, what: str, subject: str, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> dict[str, Any]:
        """One request. An error of the server, or none at all, is asked again later; a refusal is none of the faults."""
        one = Asked("client", what, subject, time.time_ns() // 1000)
        self.asked.append(one)
        answer = self.run.gateway.client.post(f"/api/v1{path}", json=body, headers=headers, timeout=CALL_SECONDS)
        if answer.is_client_error and answer.status_code not in RETRIED and not _is_over_already(what, answer):
            one.answer = "refused"
            raise Refused(f"{what} {subject}: {answer.status_code} {answer.text}")
        if _is_over_already(what, answer):
            one.answer = "refused"
            return {}
        told: dict[str, Any] = answer.raise_for_status().json()
        one.answer, one.to_us = "ok", time.time_ns() // 1000
        return told


def _is_over_already(what: str, answer: httpx.Response) -> bool:
    """Whether a cancellation came too late: the job had ended."""
    return what == "cancel" and answer.status_code == httpx.codes.CONFLICT
