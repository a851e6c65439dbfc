"""A random schedule of every fault, from a seed: `make chaos MINUTES=30 SEED=7`. The oracle says what it cost; all must be 0.

Jobs of every kind keep coming while faults come and go, one upon another. When the time is over all faults are healed, every
job has to end, and the API servers' audit logs are held against what the gateway says.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from devtools.localfleet import start_fleet, stop_fleet
from devtools.localfleet.admin import client
from devtools.oracle import JOB_LABEL, Verdict, read_witness
from tests.faults.databases import Databases
from tests.faults.proxy import STATUSES, Lie, LyingProxy, Mischief
from tests.faults.stand import FaultRun, Stand, start_behind
from tests.journeys.workload import job

ROLES = ("web", "worker", "beat", "observer")
STEPS = ("claimed", "created", "starting", "released")
MOST_OPEN = 60
"""Jobs under way at the same time: the machine, not the gateway, is what has to keep up."""
ENDING_SECONDS = 600
CALL_SECONDS = 5
LIES, CANCELS = 0.3, 0.1
"""How many of the jobs are lied about, and how many are cancelled."""
RETRIED = {408, 409, 429}
SETTLED_SECONDS = 900
Undo = Callable[[], None]


@dataclass
class Chaos:
    """One run. `faults` may be healed before the end; `done` counts what was done, by name."""

    stand: Stand
    mischief: Mischief
    skews: Path
    chance: random.Random
    run: FaultRun
    done: Counter[str] = field(default_factory=Counter)
    left_out: frozenset[str] = frozenset()
    standing: list[tuple[float, str, Undo]] = field(default_factory=list)
    unsent: list[dict[str, Any]] = field(default_factory=list)
    to_cancel: set[str] = field(default_factory=set)
    open_jobs: int = 0
    number: int = 0

    def go_on(self, seconds: float) -> None:
        """Jobs and faults until the time is over; then everything is healed."""
        until = time.monotonic() + seconds
        try:
            while (now := time.monotonic()) < until:
                for fault in [fault for fault in self.standing if fault[0] <= now]:
                    self._end(fault)
                self._submit()
                self._break_something(until)
                time.sleep(self.chance.uniform(0.2, 2.0))
        finally:
            for fault in list(self.standing):
                self._end(fault)
            for proxy in self.stand.proxies.values():  # one that was being cut when something failed has no undo
                proxy.heal()
        deadline = time.monotonic() + ENDING_SECONDS
        while self.unsent and time.monotonic() < deadline:
            self.send()
            time.sleep(1)
        assert not self.unsent, "the gateway takes no jobs any more"

    def _end(self, fault: tuple[float, str, Undo]) -> None:
        self.standing.remove(fault)
        fault[2]()
        say(f"{_moment()}   healed: {fault[1]}")

    def _submit(self) -> None:
        """A few jobs more. What is not acknowledged is sent again with the same key until it is."""
        for _ in range(self.chance.randint(1, 4)):
            self.number += 1
            tag = f"chaos-{self.number}"
            gpu = self.chance.choice([None, {"count": 1}, {"count": 2}])
            count, seconds = self.chance.choice([1, 1, 1, 2, 4]), self.chance.randint(1, 15)
            spec: dict[str, Any] = job(tag, count=count, gpu=gpu, seconds=seconds)
            if self.chance.random() < LIES:
                spec["pod_sets"][0]["image"] = f"registry.example/job:{tag}"
                self.mischief.lies[tag] = self._lie()
            if self.chance.random() < CANCELS:
                self.to_cancel.add(tag)
            if len(self.unsent) + self.open_jobs < MOST_OPEN:
                self.unsent.append(spec)
        self.send()

    def send(self) -> None:
        """Sends what is not acknowledged yet, and asks how many jobs are open; a gateway that is down is asked again later."""
        with suppress(httpx.HTTPError):
            while self.unsent:
                spec = self.unsent[0]
                headers = {"Idempotency-Key": f"{id(self)}-{spec['name']}"}
                answer = self._call("POST", "/jobs", json=spec, headers=headers)
                self.unsent.pop(0)
                job_id, name = answer.json()["id"], spec["name"]
                self.run.acked[job_id] = name
                if name in self.to_cancel:
                    self.run.may_end[job_id] = frozenset({"succeeded", "cancelled"})
                    self.done["a job is cancelled"] += 1
                    self._call("POST", f"/jobs/{job_id}/cancel", json={})
            found = self._call("GET", "/jobs", params={"limit": 500, "state": "queued,dispatching,running,cancelling"})
            self.open_jobs = len(found.json()["items"])

    def _call(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """One call of the API, which may fail as the gateway may; a refusal is none of the faults."""
        client_ = self.stand.gateway.client
        answer = client_.request(method, f"/api/v1{path}", timeout=CALL_SECONDS, **arguments)
        if answer.is_client_error and answer.status_code not in RETRIED:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.raise_for_status()

    def _lie(self) -> Lie:
        step = self.chance.choice(["create", "release", "delete"])
        reply = self.chance.choice([*STATUSES, "lost", "late", "repeated"])
        return Lie(step, reply, reply == "repeated" or self.chance.random() < 0.5)

    def _break_something(self, until: float) -> None:
        name = self.chance.choice(sorted(FAULTS.keys() - self.left_out))
        if any(standing == name or (FAULTS[name].alone and FAULTS[standing].alone) for _, standing, _ in self.standing):
            return
        say(f"{_moment()} {name}")
        undo = FAULTS[name].work(self)
        self.done[name] += 1
        if undo is not None:
            self.standing.append((min(until, time.monotonic() + self.chance.uniform(1, 20)), name, undo))


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done, and what undoes it. `alone`: not while another such one stands."""

    work: Callable[[Chaos], Undo | None]
    alone: bool = False


def _kill(chaos: Chaos) -> None:
    chaos.stand.kill_all(chaos.chance.choice(ROLES))


def _crash_between_steps(chaos: Chaos) -> None:
    (chaos.stand.flags / chaos.chance.choice(STEPS)).touch()


def _freeze(chaos: Chaos) -> Undo:
    frozen = chaos.stand.gateway.processes(chaos.chance.choice(ROLES[1:]))
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)

    def go_on() -> None:
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    return go_on


def _cut(chaos: Chaos) -> Undo:
    proxy = chaos.stand.proxies[chaos.chance.choice(sorted(chaos.stand.proxies))]
    proxy.cut(chaos.chance.choice(["requests", "answers", "both"]))
    return proxy.heal


def _cut_database(chaos: Chaos) -> Undo:
    relay = chaos.stand.databases.primary.relay
    relay.cut(chaos.chance.choice(["requests", "answers", "both"]))
    return relay.heal


def _read_only(chaos: Chaos) -> Undo:
    chaos.stand.databases.set("default_transaction_read_only", "on")
    return lambda: chaos.stand.databases.set("default_transaction_read_only", "off")


def _restart_database(chaos: Chaos) -> None:
    chaos.stand.databases.primary.kill()
    chaos.stand.databases.primary.start()


def _promote(chaos: Chaos) -> None:
    chaos.stand.databases.promote()
    time.sleep(chaos.chance.uniform(0, 3))
    chaos.stand.databases.add_replica()


def _freeze_api_server(chaos: Chaos) -> Undo:
    plane = chaos.chance.choice(chaos.stand.planes)
    plane.pause("kube-apiserver")
    return lambda: plane.resume("kube-apiserver")


def _restart_api_server(chaos: Chaos) -> None:
    chaos.chance.choice(chaos.stand.planes).restart("kube-apiserver")


def _flush_broker(chaos: Chaos) -> None:
    with suppress(Exception):  # it may be gone itself
        chaos.stand.gateway.flush_broker()


def _kill_broker(chaos: Chaos) -> None:
    with suppress(IndexError, psutil.NoSuchProcess):
        chaos.stand.gateway.kill("valkey-server")


def _skew(chaos: Chaos) -> Undo:
    role = chaos.chance.choice(["worker", "observer", "beat", "gunicorn"])
    chaos.skews.write_text(json.dumps({role: chaos.chance.choice([-7200, -60, 60, 7200])}))
    return lambda: chaos.skews.unlink(missing_ok=True)


def _evict(chaos: Chaos) -> None:
    plane = chaos.chance.choice(chaos.stand.planes)
    with client(plane) as http:
        found = http.get("/api/v1/pods", params={"labelSelector": JOB_LABEL, "fieldSelector": "status.phase=Running"})
        pods = found.json().get("items", [])
        if pods:
            meta = chaos.chance.choice(pods)["metadata"]
            name = {"name": meta["name"], "namespace": meta["namespace"]}
            http.post(
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction",
                json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name},
            )


FAULTS: Mapping[str, Fault] = {
    "a role's processes are killed": Fault(_kill),
    "a worker dies between two steps": Fault(_crash_between_steps),
    "a role's processes stand still": Fault(_freeze),
    "a cluster is cut off": Fault(_cut, alone=True),
    "the database is cut off": Fault(_cut_database, alone=True),
    "the database only reads": Fault(_read_only, alone=True),
    "the database is killed": Fault(_restart_database, alone=True),
    "the replica is promoted": Fault(_promote, alone=True),
    "an API server stands still": Fault(_freeze_api_server, alone=True),
    "an API server is killed": Fault(_restart_api_server, alone=True),
    "the broker is emptied": Fault(_flush_broker),
    "the broker is killed": Fault(_kill_broker),
    "a clock is wrong": Fault(_skew),
    "a pod is evicted": Fault(_evict, alone=True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it came to."""

    jobs: int
    verdict: Verdict
    false_ends: list[str]

    @property
    def figures(self) -> dict[str, int]:
        """All but the jobs, the estimates and what clusters doubled themselves must be 0."""
        return {
            "jobs": self.jobs,
            "lost": len(self.verdict.lost),
            "ran_twice": len(self.verdict.ran_twice),
            "false_ends": len(self.false_ends),
            "misplaced": len(self.verdict.misplaced),
            "misbilled": len(self.verdict.misbilled),
            "estimated": len(self.verdict.estimated),
            "doubled": len(self.verdict.doubled),
        }

    @property
    def is_clean(self) -> bool:
        """Nothing went wrong."""
        return self.verdict.is_clean and not self.false_ends


def unleash(
    stand: Stand, mischief: Mischief, skews: Path, *, seconds: float, seed: int, left_out: frozenset[str] = frozenset()
) -> Outcome:
    """Breaks things for so long, waits for every job to end, and has it judged."""
    say(f"chaos: seed {seed}, {seconds:g} s")
    chaos = Chaos(stand, mischief, skews, random.Random(seed), FaultRun(stand.gateway), left_out=left_out)
    chaos.go_on(seconds)
    chaos.done["a lie is told"] = len(mischief.told)
    say(f"chaos: did {dict(sorted(chaos.done.items()))}")
    with suppress(AssertionError):  # what has not ended is lost, as the oracle says
        chaos.run.wait_until_all_ended(ENDING_SECONDS)
        chaos.run.wait_until_settled(SETTLED_SECONDS)
    verdict = chaos.run.verdict(read_witness({plane.name: plane.layout.audit_log for plane in stand.planes}))
    outcome = Outcome(len(chaos.run.acked), verdict, chaos.run.false_ends())
    say(f"chaos: seed {seed}: {json.dumps(outcome.figures)}")
    for sentence in (*verdict.lost, *verdict.ran_twice, *outcome.false_ends, *verdict.misplaced, *verdict.misbilled):
        say(f"  {sentence}")
    for what, sentences in (("estimated", verdict.estimated), ("doubled", verdict.doubled)):
        for sentence in sentences:
            say(f"  {what}: {sentence}")
    return outcome


def _moment() -> str:
    """As the logs of the gateway and of the control planes tell it."""
    return time.strftime("%H:%M:%S", time.gmtime())


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Exit status: 0 if nothing was lost, run twice, ended falsely, misplaced or misbilled."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="append", default=[], choices=sorted(FAULTS), help="a fault to leave out")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="switchyard-chaos-", dir="/var/tmp"))
    root.chmod(0o755)
    (root / "flags").mkdir()
    planes = start_fleet(3, root / "fleet", audit=True)
    mischief = Mischief()
    proxies = {plane.name: LyingProxy(plane, mischief) for plane in planes}
    databases = Databases(root / "databases")
    try:
        stand = start_behind(root / "home", planes, proxies, databases, root / "flags", root / "skews.json")
        try:
            outcome = unleash(
                stand,
                mischief,
                root / "skews.json",
                seconds=options.minutes * 60,
                seed=options.seed,
                left_out=frozenset(options.without),
            )
        finally:
            stand.gateway.stop()
    finally:
        for proxy in proxies.values():
            proxy.close()
        databases.close()
        stop_fleet(planes)
    if outcome.is_clean:
        shutil.rmtree(root, ignore_errors=True)
    else:
        say(f"logs are in {root}")
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
