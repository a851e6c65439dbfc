"""One run: the processes of a gateway, its clients, its clusters, and what befalls them, all from one seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from django.conf import settings
from django.db import Error, close_old_connections
from django.utils.module_loading import import_string

from clusters.drivers import connections as driver_connections
from clusters.drivers.address import ClusterAddress
from clusters.drivers.registry import Kind
from federation import operations
from federation.observer import process as observers
from foundation import bell as bells
from foundation import host as hosts
from foundation import threads as pools
from foundation.problems import Problem

from . import loop, mischief
from .actors import Actor, Policy
from .backend.base import DatabaseWrapper, Stage
from .broker import Broker, Stop
from .cluster import Cluster
from .database import Watch
from .driver import Link, SimulatedClusterDriver
from .faults import Faults
from .history import Asked, History
from .mischief import Mischief
from .processes import Calls, Machine, Process, SimulatedHost, SimulatedPools, Slots
from .scheduler import MICROSECONDS, Scheduler
from .size import Size
from .stage import (
    BEGAN_US,
    BELL_POLL_SECONDS,
    CLUSTERS,
    OBSERVER_ROUND_SECONDS,
    TEAMS,
    identity_of,
    nodes_of,
    schedules,
    user,
)

CHAOS_SECONDS = (40.0, 150.0)
HEAL_SECONDS = 1800.0
"""What should end ends within this time after the world has healed."""
LOOK_SECONDS = 5.0
LONG_SECONDS = 900
RESTART_SECONDS = (0.5, 20.0)
QUEUES = (("cycle", "bill"), ("dispatch",), ("observe",))

STILL = """
SELECT (SELECT count(*) FROM federation_job WHERE state NOT IN ('succeeded', 'failed', 'cancelled')),
       (SELECT count(*) FROM federation_attempt WHERE settled_at IS NULL)
"""


@dataclass(slots=True)
class Submission:
    """A job that a client wants."""

    key: str
    client: str
    body: dict[str, Any]
    cancel_after: float | None
    job_id: str = ""
    is_refused: bool = False
    is_cancelled: bool = False
    """Whether a cancellation was acknowledged."""


@dataclass(slots=True)
class World:
    """See the module."""

    seed: int
    watch: Watch
    slots: Slots
    size: Size = field(default_factory=Size)
    scheduler: Scheduler = field(init=False)
    machine: Machine = field(init=False)
    faults: Faults = field(init=False)
    broker: Broker = field(init=False)
    history: History = field(init=False)
    clusters: dict[str, Cluster] = field(init=False)
    links: dict[str, Link] = field(init=False)
    submissions: list[Submission] = field(init=False)
    removed: list[Cluster] = field(default_factory=list)
    """Clusters that others were built in place of."""
    processes: dict[str, Process] = field(default_factory=dict)
    proof: list[str] = field(default_factory=list)
    """What the gateway's own proof found at the end."""
    wishes: list[tuple[str, Callable[[], object]]] = field(default_factory=list)
    """What operators want, in words and as an operation."""
    dispatch: Any = field(default_factory=lambda: blake2b(digest_size=16))
    healed_us: int = 0
    is_done: bool = False
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/world")
        is_pct = self.chance.random() < 0.4
        policy = Policy(
            is_pct, change_one_in=self.chance.choice((50, 200, 1000)), tick_one_in=self.chance.choice((4, 16))
        )
        self.scheduler = Scheduler(self.seed, self.watch, policy, BEGAN_US)
        self.history = History(BEGAN_US)
        self.scheduler.tell = self.tell
        self.machine = Machine(self.scheduler, self.slots, self.seed)
        self.faults = Faults(self.seed, self.size.without, self.size.spared)
        self.broker = Broker(self.scheduler, self.faults)
        self.clusters = {name: self._cluster(name) for name in CLUSTERS}
        self.links = {name: Link(cluster, self.faults, self.scheduler) for name, cluster in self.clusters.items()}
        self.submissions = self._plan()

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the timeline."""
        self.history.tell(self.scheduler.now_us, who, what)

    def run(self) -> None:
        """Runs the world to its end. Raises Stalled if the simulation itself is at fault."""
        self.watch.restore()
        self._install()
        try:
            self._begin()
            self.scheduler.run(lambda: self.is_done)
        finally:
            self.scheduler.finish()
            self.slots.await_all()
            self.slots.sort()
            DatabaseWrapper.stage = None
            hosts.use_host(hosts.Host())
            pools.use_pools(pools.Pools())

    # -- before -----------------------------------------------------------------------------------------------------

    def _install(self) -> None:
        """Puts the simulation behind the gateway's seams, and forgets what an earlier run left in the process."""
        stage = Stage(self.scheduler)
        stage.on_notify = self.broker.announce
        stage.fault_at_statement = lambda: self.faults.happens("statement_lost")
        stage.fault_at_commit = self._fault_at_commit
        DatabaseWrapper.stage = stage
        hosts.use_host(SimulatedHost(self.machine))
        pools.use_pools(SimulatedPools(self.machine))
        calls = Calls(self.machine, self._driver)
        driver_connections._process = lambda: calls  # type: ignore[assignment, return-value]  # noqa: SLF001
        driver_connections.kind_of = lambda server: Kind(self._driver)  # type: ignore[attr-defined]  # noqa: ARG005
        bells._listening = self.broker.listening  # noqa: SLF001
        bells.POLL_SECONDS = BELL_POLL_SECONDS
        observers.ROUND_SECONDS = OBSERVER_ROUND_SECONDS
        self.scheduler.on_step = self._on_step

    def _driver(self, address: ClusterAddress) -> Any:
        return SimulatedClusterDriver(self.links[address.server.partition("://")[2]], settings.INSTALL_ID)

    def _cluster(self, name: str) -> Cluster:
        chance = random.Random(f"{self.seed}/cluster/{name}")
        cluster = Cluster(name, identity_of(name), nodes_of(name), self.scheduler, chance)
        cluster.tell = lambda what: self.tell(name, what)
        cluster.is_committed = self._is_committed
        if self.faults.rates.get("clocks_differ"):
            cluster.ahead_us = chance.randrange(-600, 600) * MICROSECONDS
        cluster.image_fails = self.faults.rates.get("image_missing", 0.0)
        return cluster

    def _is_committed(self, attempt_id: str) -> bool:
        rows = self.watch.rows("SELECT starting_at FROM federation_attempt WHERE id = %s", attempt_id)
        return bool(rows) and rows[0][0] is not None

    def _plan(self) -> list[Submission]:
        chance = random.Random(f"{self.seed}/plan")
        count = chance.randint(2, 4)
        plan = []
        for number in range(count):
            pod = {
                "name": "main", "count": chance.choice((1, 1, 2)), "image": "registry.example/train:1", "cpu": "1",
                "memory": "1Gi", "gpu": {"count": chance.choice((1, 2, 4))},
            }  # fmt: skip
            pod_sets = [pod] if chance.random() < 0.8 else [pod, pod | {"name": "side", "count": 1}]
            cancel = chance.uniform(0, 60) if chance.random() < 0.3 else None
            labels = {
                "sim.switchyard.dev/run-seconds": str(chance.choice((1, 5, 20, 60, LONG_SECONDS if cancel else 200))),
                "sim.switchyard.dev/exit-code": str(chance.choice((0, 0, 0, 3))),
            }
            body = {
                "tenant": chance.choice(TEAMS), "name": f"job-{number}", "pod_sets": pod_sets, "labels": labels,
                "deadline_seconds": chance.choice((300, 1000)),
            }  # fmt: skip
            if self.size.jobs and number not in self.size.jobs:
                continue
            plan.append(Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel))
        return plan

    # -- processes --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        chance, few = self.chance, self.size.alone
        names = ["bell-1", "observer-1", "worker-1"]
        if not few:
            names += [name for name in ("bell-2", "observer-2", "worker-2") if chance.random() < 0.5]
            if chance.random() < 0.1:
                names = [name for name in names if not name.startswith("worker")]
        for name in [*names, "web", "operator"]:
            self._launch(name)
        chaos = chance.uniform(*CHAOS_SECONDS)
        for event in self.faults.events():
            self.scheduler.after(self.faults.between(0, chaos), lambda event=event: Mischief(self).befall(event))  # type: ignore[misc]
        self.scheduler.after(chaos, self._heal)

    def _launch(self, name: str) -> None:
        process = Process(name)
        if self.faults.rates.get("clocks_differ"):
            process.ahead_us = self.chance.randrange(-300, 300) * MICROSECONDS
        self.processes[name] = process
        kind = name.partition("-")[0]
        mains: dict[str, list[tuple[str, Callable[[], object]]]] = {
            "bell": [("main", self._ring)],
            "observer": [("main", lambda: loop.run(self.scheduler, lambda: observers.Observer().run()))],
            "worker": [(queues[0], lambda queues=queues: self._work(queues)) for queues in QUEUES],  # type: ignore[misc]
            "operator": [("main", self._operate)],
            "web": [(one.key, lambda one=one: self._want(one)) for one in self.submissions],  # type: ignore[misc]
        }
        for what, main in mains[kind]:
            self.machine.start(process, what, main)

    def _die(self, process: Process) -> None:
        """The process is killed, and started again after a while."""
        if process.is_dead:
            return
        self.machine.kill(process)
        self.scheduler.after(self.faults.between(*RESTART_SECONDS), lambda: self._launch(process.name))

    def _on_step(self, actor: Actor, what: str) -> None:
        if "/dispatch" in actor.name:
            self.dispatch.update(f"{actor.process.name} {what}\n".encode())
        if not actor.is_dead and self.faults.happens("death"):
            assert isinstance(actor.process, Process)
            self._die(actor.process)

    def _fault_at_commit(self) -> str:
        if self.faults.happens("commit_lost_done"):
            return "done"
        return "not_done" if self.faults.happens("commit_lost_not_done") else ""

    def _ring(self) -> None:
        bell = bells.Bell(schedules(), self.broker, stopping=Stop(self.scheduler))  # type: ignore[arg-type]
        bell.run()

    def _work(self, queues: tuple[str, ...]) -> None:
        while True:
            message = self.broker.take(queues)
            close_old_connections()
            try:
                import_string(message.task)()
            except Exception as error:  # noqa: BLE001 - Celery logs it and goes on
                self._note_failure(message.task, error)
            close_old_connections()

    def _note_failure(self, what: str, error: Exception) -> None:
        self.tell(self.scheduler.current.name, f"{what} fails: {type(error).__name__}: {str(error)[:100]}")
        if not isinstance(error, Error):
            self.machine.unexpected.append(f"{what}: {type(error).__name__}: {error}")

    # -- clients ----------------------------------------------------------------------------------------------------

    def _want(self, one: Submission) -> None:
        """Submits until the client knows its job, and cancels it later if it wants to. A new web process goes on."""
        actor = user(one.client)
        if not one.job_id and not one.is_refused:
            self.scheduler.sleep(self.faults.between(0, 20))
        while not one.job_id and not one.is_refused:
            raw = one.key.encode()
            asked = self._ask(one.client, "submit", one.key)
            try:
                answer = operations.submit_job(
                    actor, one.body, show=lambda job: {"id": str(job.id)}, key=one.key, raw=raw
                )
                one.job_id = answer.body["id"]
                self._told(asked, "ok", one.job_id)
            except Problem as problem:
                one.is_refused = problem.status not in (409, 429)
                self._told(asked, "refused" if one.is_refused else "later", f"{problem.code}: {problem}")
            except Error as error:
                self._told(asked, "unknown", type(error).__name__)
            self.scheduler.sleep(self.faults.between(0.1, 3))
        while one.job_id and one.cancel_after is not None and not one.is_cancelled:
            self.scheduler.sleep(one.cancel_after)
            asked = self._ask(one.client, "cancel", one.job_id)
            try:
                job = operations.request_cancellation(actor, one.job_id)  # type: ignore[arg-type]
                one.is_cancelled = True
                self._told(asked, "ok", job.state)
            except Problem as problem:
                one.cancel_after = None
                self._told(asked, "refused", f"{problem.code}: {problem}")
            except Error as error:
                self._told(asked, "unknown", type(error).__name__)

    def _ask(self, client: str, what: str, subject: str) -> Asked:
        asked = Asked(client, what, subject, self.scheduler.now_us)
        self.history.asked.append(asked)
        self.tell(client, f"asks to {what} {subject}")
        return asked

    def _told(self, asked: Asked, answer: str, told: Any) -> None:
        asked.to_us, asked.answer, asked.told = self.scheduler.now_us, answer, told
        self.tell(asked.client, f"is answered {answer}: {told}")

    def _operate(self) -> None:
        """Carries out what operators want, each until it has succeeded."""
        while True:
            while self.wishes:
                what, act = self.wishes[0]
                self.tell("operator", what)
                try:
                    act()
                except Problem as problem:
                    self.tell("operator", f"is refused: {problem}")
                except Error as error:
                    self.tell("operator", f"never learns: {type(error).__name__}")
                    self.scheduler.sleep(1)
                    continue
                self.wishes.pop(0)
            self.scheduler.sleep(2)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No fault happens any more. Everything that should end must end now."""
        self.tell("world", "heals")
        self.faults.is_healed = True
        self.healed_us = self.scheduler.now_us
        for link in self.links.values():
            link.is_cut = link.are_watches_dead = link.is_revoked = False
        for cluster in self.clusters.values():
            cluster.image_fails = 0.0
            for node in cluster.nodes.values():
                if not node.is_ready:
                    cluster.repair_node(node.name)
        for process in self.processes.values():
            process.is_frozen = False
        for name in CLUSTERS:
            self.wishes.append((f"opens {name}", lambda name=name: mischief.open_cluster(name)))  # type: ignore[misc]
        self.wishes.append(("restores the limits", mischief.restore_limits))
        self.scheduler.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Ends the run when all is still, or too late."""
        is_late = self.scheduler.now_us - self.healed_us > HEAL_SECONDS * MICROSECONDS
        if is_late or self._is_still():
            self.is_done = True
        else:
            self.scheduler.after(LOOK_SECONDS, self._look)

    def _is_still(self) -> bool:
        if not all(one.is_refused or one.job_id for one in self.submissions):
            return False
        if any(one.cancel_after is not None and one.job_id and not one.is_cancelled for one in self.submissions):
            return False
        if any(cluster.running for cluster in self.clusters.values()):
            return False
        return self.watch.rows(STILL) == [(0, 0)]
