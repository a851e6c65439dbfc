"""A container's processes: started in new namespaces, signalled, measured.

The container's command is process 1 of its namespace, as in a real container: it ignores signals that it does not handle,
except SIGKILL, and all its descendants end with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

NAMESPACES = Path(__file__).parent / "namespaces.py"
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
KILLED = 128


class CannotStart(Exception):
    """The container's command cannot run; the message says why."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the kubelet, and where the container expects it."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the inside of a container has to know. `scratch` gets what it writes outside its mounts."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    hostname: str
    uid: int
    gid: int
    groups: Sequence[int]
    mounts: Sequence[Mount]
    scratch: str
    shm: str
    kubelet: str
    reachable: Sequence[str] = (sys.prefix, sys.base_prefix)


@dataclass(slots=True)
class Running:
    """A container that runs. `pid` is its command's, as the kubelet sees it."""

    plan: Plan
    process: asyncio.subprocess.Process
    pid: int
    is_out_of_memory: bool = False

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the command, unless it has ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> int:
        """The exit code of the command, once it and all its descendants have ended."""
        code = await self.process.wait()
        return KILLED - code if code < 0 else code


async def start(plan: Plan) -> Running:
    """The running container. Raises CannotStart."""
    scratch = Path(plan.scratch)
    plan_file, fifo = scratch / "plan.json", scratch / "report"
    plan_file.touch(mode=0o600)
    plan_file.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    os.mkfifo(fifo, 0o600)
    report = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(report),
        os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0),
    )
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(NAMESPACES), "inside", str(plan_file), str(fifo),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        return await _started(plan, process, report)
    finally:
        transport.close()


async def _started(plan: Plan, process: asyncio.subprocess.Process, report: asyncio.StreamReader) -> Running:
    complaint = asyncio.ensure_future(report.read())
    ended = asyncio.ensure_future(process.wait())
    await asyncio.wait({complaint, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not complaint.done():
        complaint.cancel()
        raise CannotStart(f"the container ended before its command ran (status {await ended})")
    ended.cancel()
    if complaint.result():
        await process.wait()
        raise CannotStart(complaint.result().decode(errors="replace"))
    pid = child_of(process.pid)
    return Running(plan, process, pid or process.pid)


def child_of(parent: int) -> int | None:
    """The only child of a process; None if it has none any more."""
    for pid in _pids():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == parent:
                return pid
    return None


async def execute(running: Running, command: Sequence[str], seconds: float) -> tuple[int, str]:
    """The exit code and the output of a command in the container; raises TimeoutError after `seconds`."""
    plan = running.plan
    groups = ["--groups", ",".join(map(str, plan.groups))] if plan.groups else ["--clear-groups"]
    process = await asyncio.create_subprocess_exec(
        "nsenter", "--target", str(running.pid), "--mount", "--pid", "--uts", "--ipc", "--root", f"--wd={plan.folder}",
        "setpriv", "--reuid", str(plan.uid), "--regid", str(plan.gid), *groups, "--no-new-privs", "--", *command,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env=dict(plan.environment), start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    code = process.returncode or 0
    return (KILLED - code if code < 0 else code), output.decode(errors="replace")[:1024]


def memory_of(containers: Iterable[Running]) -> dict[int, int]:
    """Memory that each container's processes use, in bytes, by `pid`.

    Anonymous and shared memory; a page that several processes share is divided among them. Files that are only cached do
    not count, nor does what an unmapped file in memory holds. Reads the exact figures only of those that might
    use more than their resident pages say.
    """
    spaces: dict[int, list[int]] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            spaces.setdefault(_space(pid), []).append(pid)
    del spaces[_space(os.getpid())]  # a container whose command has ended is known by a process outside of it
    found = {}
    for container in containers:
        with contextlib.suppress(OSError):
            found[container.pid] = sum(_memory_bytes(pid) for pid in spaces.get(_space(container.pid), ()))
    return found


def _pids() -> list[int]:
    return [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]


def _space(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def _memory_bytes(pid: int) -> int:
    total_kib = 0
    with contextlib.suppress(OSError):  # it has just ended
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:", "SwapPss:")):
                total_kib += int(line.split()[1])
    return total_kib * 1024
