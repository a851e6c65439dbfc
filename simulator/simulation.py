"""The events of a replay in order of time: jobs arrive, start, end and lose failing nodes; the gateway decides in
between.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from placement.values.preemption import RESTART_SECONDS

from .figures import Figures
from .gateways import Choice, Gateway, Known, Move, Running
from .members import settle
from .tally import Tally
from .values import HOUR, ClusterPlan, Conditions, TraceJob
from .world import Layout, Shelves

Progress: TypeAlias = Callable[[int, int, float], None]
"""Called from time to time with the number of finished jobs, the number of all jobs, and the time."""
STRIDE = 0.6180339887
"""The stride of successive failures, as a part of the fleet: spread evenly and never at random."""
TELL_EVERY = 256
ROUTINE = frozenset({"summary", "cycle"})
"""Events that recur automatically without end."""


@dataclass(slots=True)
class JobRun:
    """A job in the replay."""

    number: int
    job: TraceJob
    left: float | None
    """Seconds of work not yet safe; None if it runs to the end of the replay."""
    cluster: int = -1
    flavor: str = ""
    started: float | None = None
    first_started: float | None = None
    finished: float | None = None
    places: list[tuple[int, list[int]]] = field(default_factory=list)
    """The node of each pod, and the devices it took there."""
    racks: int = 0
    blocks: int = 0
    tries: int = 0
    lost_seconds: float = 0.0
    choice: Choice | None = None
    """Whether it waits in its cluster for room that the gateway assumed."""


class Simulation:
    """One gateway on one trace. `run` it once."""

    def __init__(
        self, plans: Sequence[ClusterPlan], jobs: Sequence[TraceJob], gateway: Gateway, conditions: Conditions
    ) -> None:
        self.layout = Layout(plans)
        self.conditions = conditions
        self.known = Known(self.layout)
        self.truth = Shelves(self.layout)
        self.runs = [
            JobRun(number, self._with_checkpoints(job), job.seconds)
            for number, job in enumerate(sorted(jobs, key=lambda job: job.submitted))
        ]
        self._running: list[dict[int, JobRun]] = [{} for _ in plans]
        """By cluster, what runs there, by number."""
        self.unplaceable = self._take_out_what_fits_nowhere()
        last = max((run.job.submitted for run in self.runs), default=0.0)
        self.until = last if conditions.until is None else conditions.until
        self.tally = Tally(self.layout, conditions.since, self.until, conditions.samples)
        self.tally.expect([run.job for run in self.runs])
        self._gateway = gateway
        self._events: list[tuple[float, int, str, Any]] = []
        self._count = self._hits = self._through = 0
        self._coming = self._in_vain = 0
        """Future events that are not routine, and the number of decisions without effect since the last of them."""
        self._queue: list[tuple[int, float, int]] = []
        """Waiting jobs by descending priority, then submission, then number."""
        self._held: list[list[JobRun]] = [[] for _ in plans]
        """By cluster, jobs that its own scheduler has no room for yet."""
        self._stale: set[int] = set()
        """Clusters whose state the gateway reads before it decides."""
        self._is_due = False
        self._next_cycle: float | None = None

    def _with_checkpoints(self, job: TraceJob) -> TraceJob:
        own = job.checkpoint_seconds or self.conditions.checkpoint_seconds
        return job if own == job.checkpoint_seconds else replace(job, checkpoint_seconds=own)

    def _take_out_what_fits_nowhere(self) -> list[JobRun]:
        fits: dict[object, bool] = {}
        out = []
        for run in self.runs:
            job = run.job
            kind = (job.pods, job.gpus, job.gpu_milli, job.cpu_millicores, job.memory_mib, job.models)
            if kind not in fits:
                rooms = (self.truth.room(job, self.layout.slice(n)).sum() for n in range(len(self.layout.plans)))
                fits[kind] = any(room >= job.pods for room in rooms)
            if not fits[kind]:
                out.append(run)
        refused = {run.number for run in out}
        self.runs = [run for run in self.runs if run.number not in refused]
        return out

    def _at(self, instant: float, kind: str, what: Any = None) -> None:
        self._count += 1
        self._coming += kind not in ROUTINE
        heapq.heappush(self._events, (instant, self._count, kind, what))

    def run(self, progress: Progress | None = None) -> Figures:
        """Plays all events and returns the figures."""
        self._by_number = {run.number: run for run in self.runs}
        self._begin()
        now = told = 0.0
        steps = 0
        while self._events and self._through < len(self.runs):
            if self.conditions.stops and self._events[0][0] > self.until:
                break
            now = self._events[0][0]
            self.tally.advance(now, self.truth, len(self._queue))
            while self._events and self._events[0][0] == now:
                _, _, kind, what = heapq.heappop(self._events)
                self._coming -= kind not in ROUTINE
                getattr(self, f"_{kind}")(what, now)
            self._decide(now)
            if self._is_stuck():
                break
            steps += 1
            if progress is not None and steps % TELL_EVERY == 0:
                progress(self._through, len(self.runs), now)
                told = now
        if self.conditions.stops:
            now = max(now, self.until)
            self.tally.advance(now, self.truth, len(self._queue))
        self._end_all(now)
        if progress is not None and told < now:
            progress(self._through, len(self.runs), now)
        return self.tally.figures(self._gateway.name, self.runs, self.unplaceable, now)

    def _is_stuck(self) -> bool:
        """True if nothing will ever change: only jobs are left that the gateway does not place on idle clusters."""
        self._in_vain = 0 if self._coming else self._in_vain + 1
        return self._in_vain > 2 * len(self.layout.plans) + 2

    def _begin(self) -> None:
        for run in self.runs:
            self._at(run.job.submitted, "submit", run)
        for number, plan in enumerate(self.layout.plans):
            for change in plan.price_changes:
                self._at(change.at, "price", (number, change))
            every = self._age(number)
            if every:
                # clusters do not all report at the same time
                self._at(every * (number + 1) / len(self.layout.plans), "summary", (number, every))
        if self.conditions.failures is not None:
            self._at(self.conditions.since + self.conditions.failures.every_seconds, "fail")
        self._chances = {
            node: (np.random.default_rng([self.conditions.seed, node]), HOUR / rate)
            for node, machine in enumerate(self.layout.machines)
            if (rate := self.layout.plans[self.layout.cluster[node]].interruptions.get(machine.flavor))
        }
        for node in self._chances:
            self._draw_interruption(node, 0.0)

    def _age(self, cluster: int) -> float:
        own = self.layout.plans[cluster].summary_seconds
        return self.conditions.summary_seconds if own is None else own

    def _submit(self, run: JobRun, now: float) -> None:
        del now
        self._enqueue(run)

    def _enqueue(self, run: JobRun) -> None:
        insort(self._queue, (-run.job.priority, run.job.submitted, run.number))
        self._is_due = True

    def _price(self, what: Any, now: float) -> None:
        cluster, change = what
        for run in self.runs:
            if run.started is not None and run.cluster == cluster and run.flavor == change.flavor:
                self.tally.charge_to(run.number, now)
                self.tally.reprice(run.number, change.price)
        self.known.prices[cluster][change.flavor] = change.price
        self._is_due = True

    def _summary(self, what: Any, now: float) -> None:
        cluster, every = what
        self._stale.add(cluster)
        self._is_due = self._is_due or bool(self._queue)
        self._at(now + every, "summary", what)

    def _cycle(self, what: Any, now: float) -> None:
        del what, now
        self._next_cycle = None

    def _decide(self, now: float) -> None:
        """Lets the gateway decide if something has happened and the interval has passed."""
        if not self._is_due:
            return
        every = self.conditions.cycle_seconds
        if every and self._next_cycle is not None:
            return
        self._hear()
        self._is_due = False
        if not self._queue:
            return
        if every:
            self._next_cycle = now + every
            self._at(self._next_cycle, "cycle")
        queue = [(number, self._by_number[number].job) for _, _, number in self._queue]
        moved = False
        for choice in self._gateway.choose(queue, self.known, now):
            if isinstance(choice, Move):
                moved = self._move(self._by_number[choice.number], now) or moved
            else:
                self._send(choice, now)
        if moved and not every:
            self._decide(now)

    def _move(self, run: JobRun, now: float) -> bool:
        """Stops a job so that it continues elsewhere; False if it does not run any more."""
        if run.started is None:
            return False
        self.tally.moves += 1
        self._requeue(run, now, RESTART_SECONDS)
        return True

    def _hear(self) -> None:
        """Updates the gateway's knowledge of the stale clusters: what is free there, less dispatched jobs that wait."""
        known = self.known
        for cluster in sorted(self._stale):
            nodes = self.layout.slice(cluster)
            before = known.shelves.extract(nodes)
            known.shelves.copy_cluster(self.truth, nodes)
            for run in self._held[cluster]:
                assert run.choice is not None
                for node in run.choice.assumed:
                    known.shelves.take(node, run.job, is_believed=True)
            known.running[cluster] = {
                **{n: Running(run.job, tuple(node for node, _ in run.places), run.started)
                   for n, run in self._running[cluster].items()},
                **{run.number: Running(run.job, run.choice.assumed, None)
                   for run in self._held[cluster] if run.choice is not None},
            }  # fmt: skip
            known.versions[nodes] += (before != known.shelves.extract(nodes)).any(axis=1)
        self._stale.clear()

    def _send(self, choice: Choice, now: float) -> None:
        """Hands a job to its cluster."""
        run = self._by_number[choice.number]
        self._queue.remove((-run.job.priority, run.job.submitted, run.number))
        for node in choice.assumed:
            self.known.shelves.take(node, run.job, is_believed=True)
            self.known.versions[node] += 1
        run.cluster, run.choice = choice.cluster, choice
        self.known.running[choice.cluster][run.number] = Running(run.job, choice.assumed, None)
        self._changed(choice.cluster, is_news=False)
        if not self._start(run, now):
            self._held[choice.cluster].append(run)
            self.tally.late += 1

    def _changed(self, cluster: int, *, is_news: bool = True) -> None:
        """Notifies the gateway immediately, unless it depends on summaries; its own actions do not count as news."""
        if not self._age(cluster):
            self._stale.add(cluster)
            self._is_due = self._is_due or is_news

    def _start(self, run: JobRun, now: float) -> bool:
        """Starts the job in its cluster, if that has room."""
        choice = run.choice
        assert choice is not None
        plan = self.layout.plans[choice.cluster]
        nodes = settle(
            self.truth, run.job, self.layout.slice(choice.cluster), plan.member,
            choice.assumed if choice.is_pinned else None, choice.assumed if choice.is_hinted else (),
        )  # fmt: skip
        if nodes is None:
            return False
        run.places = [(node, self.truth.take(node, run.job)) for node in nodes]
        machines = [self.layout.machines[node] for node in nodes]
        run.flavor, run.choice, run.started = machines[0].flavor, None, now
        run.first_started = now if run.first_started is None else run.first_started
        run.tries += 1
        self._running[run.cluster][run.number] = run
        run.racks = len({machine.domain for machine in machines})
        run.blocks = len({machine.domain[:2] for machine in machines})
        self.tally.start(run.number, run.job, run.cluster, self.known.price(run.cluster, run.flavor), now)
        if run.left is not None:
            self._at(now + run.left, "end", (run, run.tries))
        self._changed(run.cluster, is_news=False)
        return True

    def _end(self, what: Any, now: float) -> None:
        run, tries = what
        if run.started is not None and run.tries == tries:
            self.known.experience.remember(run.job, now - run.started)
            self._stop(run, now)
            run.finished = now
            self._through += 1

    def _stop(self, run: JobRun, now: float) -> None:
        """Frees the job's devices, and starts jobs that wait for them in the cluster."""
        for node, devices in run.places:
            self.truth.give_back(node, run.job, devices)
        run.places, run.started = [], None
        del self._running[run.cluster][run.number]
        self.tally.stop(run.number, now)
        self._changed(run.cluster)
        self._retry(run.cluster, now)

    def _retry(self, cluster: int, now: float) -> None:
        self._held[cluster] = [run for run in self._held[cluster] if not self._start(run, now)]

    def _fail(self, what: Any, now: float) -> None:
        del what
        failures = self.conditions.failures
        assert failures is not None
        if now + failures.every_seconds <= self.until:
            # endless failures would prevent a long job without checkpoints from ever ending
            self._at(now + failures.every_seconds, "fail")
        self._hits += 1
        node = int(self._hits * STRIDE % 1 * len(self.layout.machines))
        if self._lose_node(node, now, failures.repair_seconds):
            self.tally.failures += 1

    def _draw_interruption(self, node: int, now: float) -> None:
        """Draws when the node is reclaimed, unless that is after the figures' window (see `_fail`)."""
        chance, mean_seconds = self._chances[node]
        instant = now + float(chance.exponential(mean_seconds))
        if instant <= self.until:
            self._at(instant, "interrupt", node)

    def _interrupt(self, node: int, now: float) -> None:
        """A spot node is reclaimed."""
        self._draw_interruption(node, now)
        if self._lose_node(node, now, self.conditions.reclaimed_seconds):
            self.tally.interruptions += 1

    def _lose_node(self, node: int, now: float, away_seconds: float) -> bool:
        """Takes a node away for a while, and the runs on it; False if it was away already."""
        if self.truth.is_down[node]:
            return False
        self.truth.is_down[node] = True
        self._at(now + away_seconds, "repair", node)
        cluster = int(self.layout.cluster[node])
        hit = [run for run in self._running[cluster].values() if any(place == node for place, _ in run.places)]
        for run in hit:
            self._requeue(run, now)
        self._changed(cluster)
        return True

    def _requeue(self, run: JobRun, now: float, restart: float = 0.0) -> None:
        """Stops the job, which waits again; `restart` is the time that it takes to continue."""
        assert run.started is not None
        done, checkpoint = now - run.started, run.job.checkpoint_seconds
        kept = done // checkpoint * checkpoint if checkpoint else 0.0
        run.lost_seconds += done - kept + restart
        self.tally.lose(run.job, run.started + kept, now + restart)
        self._stop(run, now)
        if run.left is not None:
            run.left += restart - kept
        self._enqueue(run)

    def _repair(self, node: int, now: float) -> None:
        self.truth.is_down[node] = False
        cluster = int(self.layout.cluster[node])
        self._changed(cluster)
        self._retry(cluster, now)

    def _end_all(self, now: float) -> None:
        for run in self.runs:
            if run.started is not None:
                self.tally.stop(run.number, now)


def replay(
    plans: Sequence[ClusterPlan],
    jobs: Sequence[TraceJob],
    gateway: Gateway,
    conditions: Conditions | None = None,
    progress: Progress | None = None,
) -> Figures:
    """What came of the trace on this fleet with this gateway."""  # fmt: skip
    return Simulation(plans, jobs, gateway, conditions or Conditions()).run(progress)
