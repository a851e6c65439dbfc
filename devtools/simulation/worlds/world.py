"""One run: the processes of a gateway, its clients, its clusters, and what befalls them, all from one seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import Error, close_old_connections
from django.utils.module_loading import import_string

from clusters.drivers import connections as driver_connections
from clusters.drivers.address import ClusterAddress
from clusters.drivers.registry import Kind
from clusters.operations import probe_cluster
from devtools.simulation.accounts.books import Books
from devtools.simulation.clusters.driver import SimulatedClusterDriver
from devtools.simulation.clusters.frail_cluster import FrailCluster
from devtools.simulation.clusters.link import Link
from devtools.simulation.core import loop
from devtools.simulation.core.actors import Actor, Policy
from devtools.simulation.core.backend.base import DatabaseWrapper, Stage
from devtools.simulation.core.broker import Broker, Stop
from devtools.simulation.core.database import Watch
from devtools.simulation.core.faults import Faults
from devtools.simulation.core.history import Asked, History, Sent
from devtools.simulation.core.processes import Calls, Machine, Process, SimulatedHost, SimulatedPools, Slots
from devtools.simulation.core.scheduler import MICROSECONDS, Scheduler
from devtools.simulation.core.swarm import ANY, Swarm
from devtools.simulation.judges.ends import broken_for_good
from devtools.simulation.judges.steps import StepLog
from devtools.simulation.mishaps import brief_windows, cut_releases, overtaken, taken_room
from devtools.simulation.mishaps.lost_commits import LostCommits
from devtools.simulation.mishaps.mischief import Mischief
from devtools.simulation.requests import administration, hooks
from devtools.simulation.requests.clients import Client, Submission
from devtools.simulation.requests.operators import Wish, operate
from devtools.simulation.setting import stage
from devtools.simulation.setting.scale import Scale, scale_of
from devtools.simulation.setting.size import Size
from devtools.simulation.setting.stage import BELL_POLL_SECONDS, CLUSTERS, OBSERVER_ROUND_SECONDS
from federation.drivers import policy_hooks
from federation.observer import feed as feeds
from federation.observer import process as observers
from foundation import bell as bells
from foundation import host as hosts
from foundation import threads as pools
from foundation.schedule import Schedule
from tenancy.queries import SYSTEM

from . import beginnings, healing, smaller
from .beginnings import begins_at, submissions_of

LOOK_SECONDS = 5.0
READ_SECONDS = 7.0
LONGEST_ROUND_SECONDS = 9.0
"""An observer's leases last fifteen seconds."""
PULSE_SECONDS, LEASE_SECONDS, LOST_SECONDS = feeds.PULSE_SECONDS, observers.LEASE_SECONDS, settings.CLUSTER_LOST_SECONDS
WRITTEN_SECONDS = feeds.RECORD_SECONDS, feeds.INVENTORY_SECONDS
LATE_SECONDS = (25.0, 90.0)
"""How long a process freezes in the middle of a dispatch: most claims expire meanwhile, and others take them over."""
RESTART_SECONDS = (0.5, 20.0)
RACKS = 0.3
"""The share of the worlds whose nodes are in racks, so that gangs over several have an order; more if gates are refused."""
QUEUES = (("cycle", "bill"), ("dispatch",), ("observe",))

STILL = """
SELECT (SELECT count(*) FROM federation_job WHERE state NOT IN ('succeeded', 'failed', 'cancelled')),
       (SELECT count(*) FROM federation_attempt WHERE settled_at IS NULL),
       (SELECT count(*) FROM federation_standstill WHERE ended_at IS NULL),
       (SELECT count(*) FROM federation_keptroom WHERE ended_at IS NULL)
"""
COMMITTED = "SELECT FROM simulation.changes WHERE what = 'attempt' AND id = %s AND after = 'starting' LIMIT 1"


@dataclass(slots=True)
class World:
    """See the module."""

    seed: int
    watch: Watch
    slots: Slots
    size: Size = field(default_factory=Size)
    swarm: Swarm = ANY
    keeps_steps: bool = False
    """Whether what happens in the clusters is noted for `steps`."""
    scale: Scale = field(init=False)
    scheduler: Scheduler = field(init=False)
    machine: Machine = field(init=False)
    faults: Faults = field(init=False)
    broker: Broker = field(init=False)
    history: History = field(init=False)
    clusters: dict[str, FrailCluster] = field(init=False)
    links: dict[str, Link] = field(init=False)
    submissions: list[Submission] = field(init=False)
    waits: dict[str, taken_room.Waits] = field(default_factory=dict)
    """The pods that waited for a node, by cluster."""
    removed: list[FrailCluster] = field(default_factory=list)
    """Clusters that others were built in place of."""
    lost_cluster: str = ""
    """The cluster that is removed or destroyed, if any: the other one must stay."""
    vanished: set[str] = field(default_factory=set)
    """Clusters of which an operator attested that their missing runs are gone."""
    spoilt: set[str] = field(default_factory=set)
    """Attempts of which the database refused to store usage for a while."""
    fulfilled: list[tuple[int, str]] = field(default_factory=list)
    """When operators learned that an action was done, and the action."""
    noticed: list[tuple[int, str, str]] = field(default_factory=list)
    """When it was announced that a node goes away: the time, its cluster and its name."""
    planned: dict[UUID, int] = field(default_factory=dict)
    """When operators learned that a maintenance window is planned, by the window."""
    processes: dict[str, Process] = field(default_factory=dict)
    begins_at: datetime = field(init=False)
    books: Books | None = None
    are_books_kept: bool = False
    """Whether accountants have posted, closed and corrected what the world cost."""
    decided: list[tuple[UUID, str]] = field(default_factory=list)
    """What accountants decided of unusual days, and was acknowledged: the day's row, and its outcome."""
    imported: set[tuple[Any, ...]] = field(default_factory=set)
    """The rows that accountants imported, and of which they know it (`emitting.py`)."""
    proof: list[str] = field(default_factory=list)
    """What the gateway's own proof found at the end."""
    wishes: list[Wish] = field(default_factory=list)
    """What operators want."""
    waiting: list[Wish] = field(default_factory=list)
    """What they will want again."""
    lost_commits: LostCommits = field(init=False)
    steps: StepLog = field(init=False)
    dispatch: Any = field(default_factory=lambda: blake2b(digest_size=16))
    healed_us: int = 0
    ended_us: int = 0
    """When nothing was left to be done."""
    is_done: bool = False
    is_broken: bool = False
    """Whether the run ended early, because it had broken a promise."""
    chance: random.Random = field(init=False)
    pace: float = field(init=False)
    """How rarely the routines run without an announcement; announcements come immediately in every world."""
    schedules: list[Schedule] = field(default_factory=list)
    """The routines of all bells."""

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/world")
        is_pct = self.chance.random() < 0.4
        policy = Policy(
            is_pct, change_one_in=self.chance.choice((50, 200, 1000)), tick_one_in=self.chance.choice((4, 16))
        )
        self.scale = scale_of(self.seed, self.size.scale, self.swarm)
        self.pace = random.Random(f"{self.seed}/pace").choice(self.scale.paces)
        without = (*self.size.without, *sorted(self.scale.without))
        self.faults = Faults(
            self.seed, without, self.size.spared, self.size.only, self.swarm.rates, share=self.scale.kinds
        )
        self.begins_at = begins_at(self.seed, self.faults.rates)
        began_us = round(self.begins_at.timestamp() * MICROSECONDS)
        self.scheduler = Scheduler(self.seed, self.watch, policy, began_us)
        self.history = History(began_us)
        self.scheduler.tell = self.tell
        self.machine = Machine(self.scheduler, self.slots, self.seed)
        self.schedules = beginnings.hastened(stage.schedules(self.pace), self.faults)
        self.broker = Broker(self.scheduler, self.faults)
        self.clusters = {name: self._cluster(name) for name in CLUSTERS}
        self.links = {name: Link(cluster, self.faults, self.scheduler) for name, cluster in self.clusters.items()}
        for name, link in self.links.items():
            link.on_write = lambda what, uid, name=name: self._note_write(name, what, uid)  # type: ignore[misc]
        self.lost_commits = LostCommits(self)
        self.steps = StepLog(self)
        for cluster in self.clusters.values():
            self.steps.follow(cluster, is_elsewhere=False)
        self.submissions = submissions_of(self)

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the timeline."""
        self.history.tell(self.scheduler.now_us, who, what)

    def wish(self, what: str, act: Callable[[], object], action: str = "") -> None:
        """Operators want this from now on. `action` is its entry in the audit trail."""
        self.wishes.append(Wish(what, act, action))

    def state_of(self, job_id: str) -> str:
        """The committed state of the job; empty if there is none."""
        rows = self.watch.rows("SELECT state FROM federation_job WHERE id = %s", job_id)
        return str(rows[0][0]) if rows else ""

    def _read_states(self) -> None:
        """An observer reads all jobs again and again, and sees what is committed."""
        now_us = self.scheduler.now_us
        for job_id, state in self.watch.rows("SELECT id, state FROM federation_job ORDER BY id"):
            self.history.asked.append(Asked("reader", "read", str(job_id), now_us, now_us, "ok", state))
        self.scheduler.after(READ_SECONDS, self._read_states)

    def _note_write(self, cluster: str, what: str, uid: str) -> None:
        self.history.sent.append(Sent(self.scheduler.now_us, cluster, what, uid))

    def run(self) -> None:
        """Runs the world to its end. Raises Stalled if the simulation itself is at fault."""
        self.watch.restore()
        self._install()
        try:
            self._begin()
            self.scheduler.run(lambda: self.is_done)
            self.ended_us = self.scheduler.now_us
            self.books = Books(self)
            self.books.keep(self._is_still)
        finally:
            self.scheduler.finish()
            self.machine.leave()
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
        for kind in (overtaken, brief_windows, cut_releases, taken_room):
            kind.install(self, stage)
        DatabaseWrapper.stage = stage
        DatabaseWrapper.sessions.begin_run()
        hosts.use_host(SimulatedHost(self.machine))
        pools.use_pools(SimulatedPools(self.machine))
        calls = Calls(self.machine, self._driver)
        driver_connections._process = lambda: calls  # type: ignore[assignment, return-value]  # noqa: SLF001
        driver_connections.kind_of = lambda server: Kind(self._driver)  # type: ignore[attr-defined]  # noqa: ARG005
        configured = hooks.hooks_of(self.faults, self.scheduler)
        policy_hooks._hooks_on = lambda _path: configured  # type: ignore[assignment, return-value]  # noqa: SLF001
        bells._listening = self.broker.listening  # noqa: SLF001
        bells.POLL_SECONDS = BELL_POLL_SECONDS * self.pace
        feeds.PULSE_SECONDS, observers.LEASE_SECONDS = PULSE_SECONDS, LEASE_SECONDS
        feeds.RECORD_SECONDS, feeds.INVENTORY_SECONDS = WRITTEN_SECONDS
        settings.CLUSTER_LOST_SECONDS = LOST_SECONDS
        beginnings.configure(self.seed, self.faults.rates)
        observers.ROUND_SECONDS = min(OBSERVER_ROUND_SECONDS * self.pace, LONGEST_ROUND_SECONDS)
        self.scheduler.on_step = self._on_step

    def _driver(self, address: ClusterAddress) -> Any:
        return SimulatedClusterDriver(self.links[address.server.partition("://")[2]], settings.INSTALL_ID)

    def _cluster(self, name: str) -> FrailCluster:
        chance = random.Random(f"{self.seed}/cluster/{name}")
        has_racks = random.Random(f"{self.seed}/racks").random() < RACKS or "gate_refused" in self.faults.rates
        nodes = stage.nodes_of(name, has_racks=has_racks)
        cluster = FrailCluster(name, stage.identity_of(name), nodes, self.scheduler, chance)
        cluster.has_kueue = name == CLUSTERS[1] and bool(self.faults.rates.get("kueue_reclaims"))
        cluster.tell = lambda what: self.tell(name, what)
        cluster.is_committed = self._is_committed
        if differ := self.faults.rates.get("clocks_differ"):
            cluster.ahead_us = round(chance.randrange(-600, 600) * differ * MICROSECONDS)
        cluster.image_fails = self.faults.rates.get("image_missing", 0.0)
        return cluster

    def _is_committed(self, attempt_id: str) -> bool:
        """Whether `starting` was committed, be it in commits that were lost since."""
        return bool(self.watch.rows(COMMITTED, attempt_id))

    # -- processes --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        chance, few = self.chance, self.size.alone
        names = ["bell-1", "observer-1", "worker-1"]
        if not few:
            names += [name for name in ("bell-2", "observer-2", "worker-2") if chance.random() < self.scale.doubled]
            if chance.random() < 0.1:
                names = [name for name in names if not name.startswith("worker")]
        for name in smaller.begin(self, [*names, "web", "operator"]):
            self.launch(name)
        if self.clusters[CLUSTERS[1]].has_kueue:
            self.wish("probes a cluster", lambda: probe_cluster(SYSTEM, administration.cluster_id(CLUSTERS[1])))
        beginnings.begin(self)
        chaos = chance.uniform(*(self.scale.chaos_seconds or self.swarm.chaos_seconds))
        for event in self.faults.events():
            self.scheduler.after(self.faults.between(0, chaos), lambda event=event: Mischief(self).befall(event))  # type: ignore[misc]
        self.scheduler.after(READ_SECONDS, self._read_states)
        self.scheduler.after(min(chaos, self.size.until or chaos), self._heal)

    def launch(self, name: str) -> None:
        """Starts a process of this name."""
        process = Process(name)
        if differ := self.faults.rates.get("clocks_differ"):
            process.ahead_us = round(self.chance.randrange(-300, 300) * differ * MICROSECONDS)
        self.processes[name] = process
        kind = name.partition("-")[0]
        mains: dict[str, list[tuple[str, Callable[[], object]]]] = {
            "bell": [("main", self._ring)],
            "observer": [("main", lambda: loop.run(self.scheduler, lambda: observers.Observer().run()))],
            "worker": [(queues[0], lambda queues=queues: self._work(queues)) for queues in QUEUES],  # type: ignore[misc]
            "operator": [("main", lambda: operate(self))],
            "web": [(one.key, lambda one=one: Client(self, one).want()) for one in self.submissions],  # type: ignore[misc]
        }
        for what, main in mains[kind]:
            self.machine.start(process, what, main)

    def _die(self, process: Process) -> None:
        """The process is killed, and started again after a while."""
        if process.is_dead:
            return
        self.machine.kill(process)
        self.scheduler.after(self.faults.between(*RESTART_SECONDS), lambda: self._replace(process))

    def _replace(self, process: Process) -> None:
        """Starts a process in place of a dead one, unless another was started meanwhile or none may start yet."""
        if self.faults.is_healed and _is_second(process.name):
            return
        may_start = process.name == "operator" or not self.lost_commits.is_closed
        if self.processes[process.name] is process and may_start:
            self.launch(process.name)

    def _on_step(self, actor: Actor, what: str) -> None:
        if "/dispatch" in actor.name:
            self.dispatch.update(f"{actor.process.name} {what}\n".encode())
            if not actor.is_dead and not actor.process.is_frozen and self.faults.happens("late"):
                assert isinstance(actor.process, Process)
                self.machine.freeze(actor.process, self.faults.between(*LATE_SECONDS))
        if not actor.is_dead and self.faults.happens("death"):
            assert isinstance(actor.process, Process)
            self._die(actor.process)

    def _fault_at_commit(self) -> str:
        if self.faults.happens("commit_lost_done"):
            return "done"
        return "not_done" if self.faults.happens("commit_lost_not_done") else ""

    def _ring(self) -> None:
        bell = bells.Bell(self.schedules, self.broker, stopping=Stop(self.scheduler))  # type: ignore[arg-type]
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

    # -- the end ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No fault happens any more. Everything that should end must end now."""
        self.tell("world", "heals")
        self.faults.is_healed = True
        self.healed_us = self.scheduler.now_us
        for link in self.links.values():
            link.is_cut = link.are_watches_dead = link.is_revoked = link.refuses_releases = False
        for cluster in self.clusters.values():
            if self.links[cluster.name].is_destroyed:
                continue
            cluster.mend()
            cluster.hurry()
            for node in cluster.nodes.values():
                if not node.is_ready or node.taints:
                    cluster.repair_node(node.name)
        for process in self.processes.values():
            process.is_frozen = False
            if _is_second(process.name):
                self.machine.kill(process)  # one of each is enough to end everything
        healing.calm_down(self)
        healing.heal(self)
        self.scheduler.after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Ends the run when all is still, or too late."""
        is_late = self.scheduler.now_us - self.healed_us > healing.patience_seconds(self) * MICROSECONDS
        self.is_broken = self.swarm is not ANY and bool(broken_for_good(self))
        if is_late or self._is_still() or self.is_broken:
            self.is_done = True
        else:
            self.scheduler.after(LOOK_SECONDS, self._look)

    def _is_still(self) -> bool:
        if not all(one.is_refused or one.job_id for one in self.submissions):
            return False
        if self.wishes or any(one.is_wanted_again and one.is_cancelled for one in self.submissions):
            return False
        if any(one.cancel_after is not None and one.job_id and not one.is_cancelled for one in self.submissions):
            return False
        if any(one.suspend_after is not None and one.job_id and not one.is_resumed for one in self.submissions):
            return False
        if any(cluster.running for cluster in self.clusters.values()):
            return False
        return healing.is_nothing_left(self) and self.watch.rows(STILL) == [(0, 0, 0, 0)]


def _is_second(name: str) -> bool:
    """Whether it names the second process of its kind."""
    return name.endswith("-2")
