"""What befalls a world from outside: clusters, nodes, networks, clocks, strangers and operators."""

from decimal import Decimal
from typing import TYPE_CHECKING

import clusters.operations
from billing.operations.prices import NewPrice, create_price
from clusters.engine.inventory import INSTALL_LABEL
from clusters.models import Flavor
from devtools.simulation.clusters.cluster import Cluster
from devtools.simulation.clusters.frail_cluster import FrailCluster
from devtools.simulation.clusters.objects import Job, Pod
from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.requests import (
    administration,
    attaching,
    bulk_requests,
    catalogue,
    data_copies,
    image_pulls,
    limit_forms,
    mistakes,
    notices,
    object_copies,
    opening,
    previewing,
    questions,
    refusals,
    reservations,
    supplies,
    trees,
    waiting_stops,
)
from devtools.simulation.requests.administration import cluster_id, path_of
from devtools.simulation.setting.stage import CLUSTERS, TEAMS, nodes_of
from federation.engine.names import LABEL_ATTEMPT
from quotas.engine.holds import CEILING, Borrowing
from quotas.operations import put_limit
from tenancy.queries import SYSTEM

from . import hidden_pods, meanwhile, outages, restores, silences, spoiling, strangers

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

QUEUED = "SELECT FROM federation_job WHERE state = 'queued' LIMIT 1"
LONGEST_WAIT = 40
"""Seconds until a backup no longer waits for a queued job."""
EVICTIONS = ("EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager")

DELAYS = (None, 0, 0, 5, 20)
"""After how many seconds what is held beyond a limit is taken back."""
LENT = (CEILING, Borrowing(None, None, reclaims=True), Borrowing(2000, 1000), Borrowing(None, 0))
"""What limits borrow and lend, in milli-GPU: ceilings, those that borrow all they can, and take back what they lent, and those
with a guarantee.
"""


class Mischief:
    """Carries out one event. It runs between steps and must not hand over."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._faults = world.faults

    def befall(self, event: str) -> None:
        """Does it, unless the world has healed meanwhile."""
        if self._faults.is_healed or not self._faults.befalls(event):
            return
        elsewhere = {
            **administration.EVENTS,
            **catalogue.EVENTS,
            **strangers.EVENTS,
            **spoiling.EVENTS,
            **notices.EVENTS,
            **restores.EVENTS,
            **bulk_requests.EVENTS,
            **mistakes.EVENTS,
            **hidden_pods.EVENTS,
            **image_pulls.EVENTS,
            **attaching.EVENTS,
            **previewing.EVENTS,
            **opening.EVENTS,
            **object_copies.EVENTS,
            **data_copies.EVENTS,
            **supplies.EVENTS,
            **outages.EVENTS,
            **meanwhile.EVENTS,
            **trees.EVENTS,
            **questions.EVENTS,
            **limit_forms.EVENTS,
            **reservations.EVENTS,
            **silences.EVENTS,
            **refusals.EVENTS,
            **waiting_stops.EVENTS,
        }
        if event in elsewhere:
            elsewhere[event](self._world)
        else:
            getattr(self, f"_{event}")()

    def _cluster(self) -> FrailCluster:
        return self._world.clusters[CLUSTERS[self._faults.choose(CLUSTERS)]]

    def _pod(self, cluster: Cluster) -> Pod | None:
        pods = [pod for pod in cluster.pods.values() if not pod.is_ended]
        return pods[self._faults.choose(pods)] if pods else None

    def _job(self, cluster: Cluster) -> Job | None:
        jobs = [
            job for job in cluster.jobs.values() if INSTALL_LABEL in job.labels and job.key not in cluster.strangers
        ]
        return jobs[self._faults.choose(jobs)] if jobs else None

    def _freeze(self) -> None:
        names = sorted(self._world.processes)
        process = self._world.processes[names[self._faults.choose(names)]]
        if not process.is_dead:
            self._world.machine.freeze(process, self._faults.between(5, 60))

    def _cut_off(self) -> None:
        cluster = self._cluster()
        link, seconds = self._world.links[cluster.name], self._faults.between(10, 200)
        link.is_cut = True
        self._world.tell(cluster.name, f"is cut off for {seconds:.0f} s")

        def heal() -> None:
            link.is_cut = False

        self._world.scheduler.after(seconds, heal)

    def _watches_dead(self) -> None:
        cluster = self._cluster()
        link, seconds = self._world.links[cluster.name], self._faults.between(10, 200)
        link.are_watches_dead = True
        self._world.tell(cluster.name, f"has no watches for {seconds:.0f} s")

        def heal() -> None:
            link.are_watches_dead = False

        self._world.scheduler.after(seconds, heal)

    def _node_dies(self) -> None:
        cluster = self._cluster()
        names = sorted(cluster.nodes)
        cluster.kill_node(names[self._faults.choose(names)])

    def _eviction(self) -> None:
        cluster = self._cluster()
        pod = self._pod(cluster)
        if pod is not None:
            cluster.evict(pod, EVICTIONS[self._faults.choose(EVICTIONS)])

    def _stranger_deletes(self) -> None:
        cluster = self._cluster()
        job = self._job(cluster)
        if job is not None:
            self._world.tell("stranger", f"deletes {job.name} on {cluster.name}")
            cluster.taken_away.add(job.labels.get(LABEL_ATTEMPT, ""))
            if self._faults.happens("deletes_behind"):
                cluster.delete_in_background(job)
            else:
                cluster.delete_job(job.namespace, job.name, job.uid)

    def _stranger_edits(self) -> None:
        """Someone puts another label on our Job, or takes one of ours away."""
        cluster = self._cluster()
        job = self._job(cluster)
        if job is None:
            return
        names = sorted(job.labels)
        label = names[self._faults.choose(names)]
        self._world.tell("stranger", f"removes {label} of {job.name} on {cluster.name}")
        cluster.taken_away.add(job.labels.get(LABEL_ATTEMPT, ""))
        del job.labels[label]

    def _restored(self) -> None:
        """The control plane is put back to where it was a while ago."""
        cluster = self._cluster()
        snapshot, seconds = cluster.snapshot(), self._faults.between(1, 40)

        def restore() -> None:
            if not self._faults.is_healed and self._world.clusters[cluster.name] is cluster:
                cluster.restore(snapshot)

        self._world.tell(cluster.name, "is backed up")
        self._world.scheduler.after(seconds, restore)

    def _database_restored(self) -> None:
        """The gateway's own database is backed up, now or as soon as a job is queued, and put back to that a while later:
        what was queued then may run already.
        """
        past, seconds = self._world.lost_commits, self._faults.between(1, 60)
        waits = self._faults.choose((False, True))

        def restore() -> None:
            if not self._faults.is_healed:
                past.restore()

        def back_up(left: int) -> None:
            if past.is_kept or past.is_closed or self._faults.is_healed:
                return
            if left and not self._world.watch.rows(QUEUED):
                self._world.scheduler.after(1, lambda: back_up(left - 1))
                return
            past.back_up()
            self._world.scheduler.after(seconds, restore)

        back_up(waits * LONGEST_WAIT)

    def _rebuilt(self) -> None:
        """Another cluster answers at the address for a while; then the first one is back."""
        name = CLUSTERS[self._faults.choose(CLUSTERS)]
        world, first = self._world, self._world.links[name].cluster
        if first is not world.clusters[name]:
            return
        other = FrailCluster(name, f"{first.identity[:-1]}f", nodes_of(name), world.scheduler, world.chance)
        other.tell = lambda what: world.tell(f"{name} (other)", what)
        other.is_committed = first.is_committed
        world.removed.append(other)
        world.links[name].cluster = other
        world.steps.follow(other, is_elsewhere=True)
        world.steps.note_address(name, is_elsewhere=True)
        world.tell(name, "is another cluster now")

        def back() -> None:
            world.links[name].cluster = first
            world.steps.note_address(name, is_elsewhere=False)
            world.tell(name, "is itself again")

        world.scheduler.after(self._faults.between(20, 100), back)

    def _clock_jumps(self) -> None:
        """Someone sets the clock of a process's host, or of a cluster."""
        seconds = self._faults.between(-600, 600)
        if self._faults.between(0, 1) < 0.5:
            names = sorted(self._world.processes)
            name = names[self._faults.choose(names)]
            self._world.processes[name].ahead_us += round(seconds * MICROSECONDS)
        else:
            cluster = self._cluster()
            cluster.ahead_us += round(seconds * MICROSECONDS)
            name = cluster.name
        self._world.tell(name, f"has its clock set by {seconds:.0f} s")

    def _credential_revoked(self) -> None:
        cluster = self._cluster()
        link, seconds = self._world.links[cluster.name], self._faults.between(5, 100)
        link.is_revoked = True
        self._world.tell(cluster.name, f"accepts our credential no more for {seconds:.0f} s")

        def heal() -> None:
            link.is_revoked = False

        self._world.scheduler.after(seconds, heal)

    def _releases_refused(self) -> None:
        """An admission webhook of the cluster denies every release for a while."""
        cluster = self._cluster()
        link, seconds = self._world.links[cluster.name], self._faults.between(30, 200)
        link.refuses_releases = True
        self._world.tell(cluster.name, f"refuses releases for {seconds:.0f} s")

        def heal() -> None:
            link.refuses_releases = False

        self._world.scheduler.after(seconds, heal)

    def _price_changed(self) -> None:
        name, price = CLUSTERS[self._faults.choose(CLUSTERS)], Decimal(round(self._faults.between(1, 5)))
        self._world.wish(f"prices {name} at {price}", lambda: _price(name, price), "price.create")

    def _limit_cut(self) -> None:
        after = DELAYS[self._faults.choose(DELAYS)]
        if after is not None:
            self._limit_enforced(after)
            return
        team = ("", administration.TEAM_NAMES[0])[self._faults.choose(TEAMS)]
        nominal = round(self._faults.between(0, 6)) * 1000
        self._world.wish(f"cuts the limit of {team or 'acme'} to {nominal}", lambda: _put(team, nominal), "quota.put")

    def _limit_enforced(self, after: int) -> None:
        """A team may hold little, and borrow none: what it holds beyond is taken back after this many seconds."""
        team = administration.TEAM_NAMES[self._faults.choose(administration.TEAM_NAMES)]
        nominal = round(self._faults.between(0, 1)) * 1000
        self._world.wish(
            f"cuts the limit of {team} to {nominal}, and takes back the rest after {after} s",
            lambda: put_limit(SYSTEM, path_of(team), "gpu", nominal=nominal, reclaim_after=after),
            "quota.put",
        )

    def _drained(self) -> None:
        name = CLUSTERS[self._faults.choose(CLUSTERS)]
        self._world.wish(f"drains {name}", lambda: clusters.operations.drain_cluster(SYSTEM, cluster_id(name)))

    def _cordoned(self) -> None:
        name = CLUSTERS[self._faults.choose(CLUSTERS)]
        self._world.wish(f"cordons {name}", lambda: clusters.operations.cordon_cluster(SYSTEM, cluster_id(name)))


def _put(team: str, nominal: int) -> None:
    path = path_of(team) if team else "acme"
    put_limit(SYSTEM, path, "gpu", nominal=nominal, borrowing=LENT[nominal // 1000 % len(LENT)])


def _price(name: str, price: Decimal) -> None:
    for flavor in Flavor.objects.filter(cluster=cluster_id(name)):
        create_price(SYSTEM, NewPrice(name, flavor.name, price))
