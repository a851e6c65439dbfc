"""One container of a pod: its runs, with the checks and hooks around each."""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from clusters.engine.quantities import parse

from .environment import Unresolvable
from .logs import Log
from .probes import Verdict, passes
from .processes import CannotStart, Plan, Running, execute, start
from .status import Status, now, running, terminated, waiting
from .volumes import Unmountable

MISSING_IMAGES = ("registry.example/missing",)
"""Repositories that cannot be pulled from. All other images are this host's files."""
BACK_OFF_SECONDS = (0, 10, 20, 40, 80, 160, 300)
FORGIVEN_SECONDS = 600
"""A run that lasts longer starts the row of pauses again."""
RETRY_SECONDS = 1
STEP_SECONDS = 0.1
CANNOT_START_CODE, OUT_OF_MEMORY_CODE = 128, 137
LONGEST_MESSAGE = 4096
TERMINATION_LOG = "/dev/termination-log"


class Home(Protocol):
    """What a container needs of its pod."""

    address: str
    folder: Path

    async def plan(self, spec: Mapping[str, Any], scratch: Path) -> Plan: ...
    def changed(self) -> None: ...
    def seconds_left(self) -> float: ...
    def grace_seconds(self) -> float: ...


class Container:
    """One container. `leave` asks it to end; `run` returns when it has ended and will not run again."""

    def __init__(self, spec: Mapping[str, Any], policy: str, home: Home, leave: asyncio.Event, reason: str) -> None:
        self.spec = spec
        self.name = str(spec["name"])
        self.state = waiting(reason)
        self.last_state: Status = {}
        self.restarts = 0
        self.is_ready = self.is_started = False
        self.has_begun = asyncio.Event()
        self.running: Running | None = None
        self.logs: list[Log] = []
        """Of its last run and the one before."""
        self._policy, self._home, self._leave = policy, home, leave
        self._is_sick = asyncio.Event()
        self._id = ""
        limit = spec.get("resources", {}).get("limits", {}).get("memory")
        self.memory_limit = int(parse(str(limit))) if limit else None

    def status(self) -> Status:
        """Its ContainerStatus."""
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": self.spec.get("image", "") if self._id else "",
            "containerID": self._id,
            "ready": self.is_ready,
            "started": self.is_started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }

    async def run(self) -> int | None:
        """The exit code of its last run; None if it never ran."""
        code, pauses = None, iter(BACK_OFF_SECONDS)
        while (plan := await self._planned()) is not None:
            began = time.monotonic()
            code = await self._once(plan)
            if self._leave.is_set() or not self._runs_again_after(code):
                break
            if time.monotonic() - began > FORGIVEN_SECONDS:
                pauses = iter(BACK_OFF_SECONDS)
            await self._pause(next(pauses, BACK_OFF_SECONDS[-1]))
            self.restarts += 1
        return code

    def kill_for_memory(self, pid: int) -> None:
        """Kills its run with this process id, which used too much."""
        if self.running and self.running.pid == pid:
            self.running.is_out_of_memory = True
            self.running.signal(signal.SIGKILL)

    def _runs_again_after(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    async def _pause(self, seconds: float) -> None:
        self.last_state = self.state
        if seconds:
            text = f"back-off {seconds}s restarting failed container={self.name}"
            self._becomes(waiting("CrashLoopBackOff", text))
            await self._left_within(seconds)

    async def _left_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._leave.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _becomes(self, state: Status) -> None:
        if state != self.state:
            self.state = state
            self._home.changed()

    async def _planned(self) -> Plan | None:
        """How to run it, once all that it needs is there; None if it is asked to end before."""
        reasons = _pull_errors()
        while not self._leave.is_set():
            image = self.spec.get("image", "")
            if _repository(image) in MISSING_IMAGES:
                self._becomes(waiting(next(reasons), f'failed to pull image "{image}": not found'))
            else:
                try:
                    scratch = self._home.folder / f"{self.name}-{uuid4().hex[:8]}"
                    return await self._home.plan(self.spec, scratch)
                except (Unresolvable, Unmountable) as error:
                    self._becomes(waiting("CreateContainerConfigError", str(error)))
            await self._left_within(RETRY_SECONDS)
        return None

    async def _once(self, plan: Plan) -> int:
        started_at = ""
        try:
            current = await start(plan)
            began = running(now())
            started_at = began["running"]["startedAt"]
            self._begin(current, began)
            code = await self._supervised(current)
            reason = _reason(code, current)
            message = self._message(Path(plan.scratch), code)
        except CannotStart as error:
            code, reason, message = CANNOT_START_CODE, "StartError", str(error)
        finally:
            self.running = None
            self.is_started = self.is_ready = False
            shutil.rmtree(plan.scratch, ignore_errors=True)
        self._becomes(terminated(code, reason, started_at=started_at, message=message))
        return code

    def _begin(self, current: Running, state: Status) -> None:
        self._id = f"local://{uuid4().hex}"
        self._is_sick.clear()
        self.running = current
        self.logs = [Log(self._home.folder / f"{self.name}-{self.restarts}.log"), *self.logs[:1]]
        if "startupProbe" not in self.spec:
            self._has_started()
        self._becomes(state)

    def _has_started(self) -> None:
        self.is_started = True
        self.is_ready = "readinessProbe" not in self.spec
        self.has_begun.set()
        self._home.changed()

    async def _supervised(self, current: Running) -> int:
        """The exit code of the run, with all of its output kept."""
        assert current.process.stdout is not None
        log = self.logs[0]
        output = asyncio.create_task(log.fill(current.process.stdout))
        health = asyncio.create_task(self._check_health(current))
        exited = asyncio.create_task(current.wait())
        asked = [asyncio.create_task(event.wait()) for event in (self._leave, self._is_sick)]
        try:
            await asyncio.wait({exited, *asked}, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await self._end(current, exited)
            return await exited
        finally:
            current.signal(signal.SIGKILL)
            for task in (health, *asked):
                task.cancel()
            await asyncio.gather(output, health, *asked, return_exceptions=True)

    async def _end(self, current: Running, exited: "asyncio.Task[int]") -> None:
        """The hook, SIGTERM, and SIGKILL when the time is up."""
        left = self._time_to_end()
        if hook := self.spec.get("lifecycle", {}).get("preStop"):
            task = asyncio.create_task(self._hook(hook, current, left()))
            await asyncio.wait({task, exited}, timeout=left(), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        current.signal(signal.SIGTERM)
        while not exited.done() and (seconds := left()) > 0:
            await asyncio.wait({exited}, timeout=min(seconds, STEP_SECONDS))
        current.signal(signal.SIGKILL)

    def _time_to_end(self) -> Callable[[], float]:
        if self._leave.is_set():
            return self._home.seconds_left
        probe = self.spec.get("livenessProbe" if self.is_started else "startupProbe", {})
        ends = time.monotonic() + probe.get("terminationGracePeriodSeconds", self._home.grace_seconds())
        return lambda: min(ends - time.monotonic(), self._home.seconds_left() if self._leave.is_set() else 3600)

    async def _hook(self, hook: Mapping[str, Any], current: Running, seconds: float) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            if "exec" in hook:
                await execute(current, hook["exec"]["command"], max(seconds, STEP_SECONDS))
            elif "sleep" in hook:
                await asyncio.sleep(hook["sleep"]["seconds"])
            else:
                await passes({**hook, "timeoutSeconds": seconds}, current, self.spec, self._home.address)

    async def _check_health(self, current: Running) -> None:
        if probe := self.spec.get("startupProbe"):
            if not await self._first_row(probe, current):
                self._is_sick.set()
                return
            self._has_started()
        await asyncio.gather(self._follow_readiness(current), self._follow_liveness(current))

    async def _first_row(self, probe: Mapping[str, Any], current: Running) -> bool:
        verdict = Verdict(probe, initially=False)
        async for result in self._results(probe, current):
            if verdict.add(result=result):
                break
        return verdict.passes

    async def _follow_readiness(self, current: Running) -> None:
        if probe := self.spec.get("readinessProbe"):
            verdict = Verdict(probe, initially=False)
            async for result in self._results(probe, current):
                if verdict.add(result=result) and verdict.passes != self.is_ready:
                    self.is_ready = verdict.passes
                    self._home.changed()

    async def _follow_liveness(self, current: Running) -> None:
        if probe := self.spec.get("livenessProbe"):
            verdict = Verdict(probe, initially=True)
            async for result in self._results(probe, current):
                if verdict.add(result=result) and not verdict.passes:
                    self._is_sick.set()
                    return

    async def _results(self, probe: Mapping[str, Any], current: Running) -> AsyncIterator[bool]:
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        while True:
            yield await passes(probe, current, self.spec, self._home.address)
            await asyncio.sleep(probe.get("periodSeconds", 10))

    def _message(self, scratch: Path, code: int) -> str:
        with contextlib.suppress(OSError), (scratch / "termination").open("rb") as file:
            if written := file.read(LONGEST_MESSAGE).decode(errors="replace"):
                return written
        falls_back = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        return self.logs[0].ending() if falls_back and code else ""


def _reason(code: int, current: Running) -> str:
    if current.is_out_of_memory and code == OUT_OF_MEMORY_CODE:
        return "OOMKilled"
    return "Error" if code else "Completed"


def _repository(image: str) -> str:
    path, _, tag = image.partition("@")[0].rpartition(":")
    return image.partition("@")[0] if not path or "/" in tag else path


def _pull_errors() -> Iterator[str]:
    yield "ErrImagePull"
    while True:
        yield "ImagePullBackOff"
