"""Follows one cluster: its watches fill a buffer and an inventory, recorders empty them, and a pulse proves contact."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

import clusters.operations
from clusters.drivers import (
    AuthFailed,
    ClaimSeen,
    ClusterDriver,
    DriverError,
    IdentityRefused,
    NodeSeen,
    PodSeen,
    Refused,
    SliceSeen,
    TooMuch,
    WatchEvent,
)
from clusters.drivers.memory import CLUSTER_BYTES, Account
from clusters.engine.clocks import Reading
from clusters.engine.inventory import ClusterInventory
from clusters.engine.pulls import ImageInventory
from federation import operations
from federation.queries.images import Followed, followed_images
from foundation import clock
from foundation.host import host
from foundation.leases import LeaseLost, Tenure
from foundation.threads import Threads

from .buffer import Buffer, only
from .times import Times

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
RECORD_SECONDS = 0.05
INVENTORY_SECONDS = 1.0
IMAGES_SECONDS = 30.0
RECOUNT_SECONDS = 600.0
"""Counts by flavor are made again after this time, even if no images have changed."""
PULSE_SECONDS = 5.0
PULSES_MISSED = 2
CLOCK_WAS_SET = timedelta(seconds=0.1)
"""How far the host's clock may move against the monotonic one while a cluster's clock is read."""
RETRY_SECONDS = 1.0
TOO_LARGE_SECONDS = 60.0
MOST_NODES = 10_000
MOST_RETRY_SECONDS = 15.0
FORBIDDEN = 403


class ClusterChanged(Exception):
    """Another cluster answers at this address: its reports must be ignored."""


class Feed:
    """Follows one cluster until cancelled. It keeps what it cannot record while the database or its lease is
    unavailable.
    """

    def __init__(
        self, cluster_id: UUID, identity: str, driver: ClusterDriver, database: Threads, tenure: Tenure
    ) -> None:
        self._cluster_id = cluster_id
        self._tenure = tenure
        self._identity = identity
        self._driver = driver
        self._database = database
        self._buffer = Buffer(settings.INSTALL_ID)
        self._times = Times()
        self._inventory = ClusterInventory(settings.INSTALL_ID)
        self._images = ImageInventory()
        self._counted: tuple[Followed, float] | None = None
        """The images that were counted last, and when."""
        self._news = asyncio.Event()
        self._following_pods: asyncio.Task[None] | None = None
        self._missed = 0
        self._is_listed_anew = False
        self._told_of_devices: str | None = None
        self._account = Account()
        self._writing = asyncio.Lock()
        self._is_too_large: bool | None = None
        """Whether the overflow of the cluster was reported; None while the report of an earlier observer is unknown."""
        self._alive_at: dict[str, float] = {}
        """When each watch of the inventory last delivered an event or proved that it is alive, on the monotonic clock."""
        self._unrecorded_since: float | None = None
        """A time before which every report is recorded, on the monotonic clock; None: all are."""

    async def run(self) -> None:
        """Watches, records and keeps the pulse; each restarts separately when the cluster or the database fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    lambda: self._follow(self._driver.watch_nodes(), self._take_nodes),
                    self._follow_pods,
                    lambda: self._follow(self._driver.watch_jobs(), self._take_jobs),
                    lambda: self._follow_devices(self._driver.watch_slices(), self._take_slices),
                    lambda: self._follow_devices(self._driver.watch_claims(), self._take_claims),
                    self._keep_pulse,
                    self._record,
                    self._record_inventory,
                    self._record_images,
                ):
                    tasks.create_task(self._persist(work))
        finally:
            self._account.release()
            await self._driver.close()

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        pause = RETRY_SECONDS
        while True:
            began, least = clock.monotonic(), 0.0
            try:
                await work()
            except LeaseLost:
                # Reports are kept: when the database recovers, the lease may continue, or the observer ends this feed.
                logger.info("cluster %s: the lease is not held now", self._cluster_id)
            except TooMuch as error:
                await self._let_go(error.reason)
                least = TOO_LARGE_SECONDS
            except DriverError as error:
                logger.info("cluster %s: %s", self._cluster_id, error.reason)
            except ClusterChanged:
                logger.error("cluster %s is not the cluster that was registered", self._cluster_id)  # noqa: TRY400 - the stack says nothing
            except Exception:
                logger.exception("following cluster %s", self._cluster_id)
            _end_if_cancelled()
            pause = (
                RETRY_SECONDS if clock.monotonic() - began > MOST_RETRY_SECONDS else min(pause * 2, MOST_RETRY_SECONDS)
            )
            await asyncio.sleep(least + pause)

    async def _follow(self, events: AsyncIterator[WatchEvent], take: Callable[[WatchEvent], None]) -> None:
        await self._check_identity()
        async for event in events:
            take(event)
            self._weigh()
            self._news.set()

    async def _follow_pods(self) -> None:
        self._following_pods = asyncio.create_task(self._follow(self._driver.watch_pods(), self._take_pods))
        try:
            await self._following_pods
        except asyncio.CancelledError:
            _end_if_cancelled()

    def list_pods_anew(self) -> None:
        """Reports all pods again: what was recorded of them may be lost. What is not recorded yet is kept."""
        if self._following_pods is not None:
            self._following_pods.cancel()

    def _weigh(self) -> None:
        if self._inventory.size > MOST_NODES:
            raise TooMuch(f"it has more than the {MOST_NODES} nodes that the gateway keeps for one cluster")
        self._account.hold(self._inventory.weight + self._buffer.weight + self._times.weight + self._images.weight)

    async def _let_go(self, reason: str) -> None:
        """Discards the cluster's reports and stops placement there until it reports less. What runs there is still
        followed.
        """
        self._inventory = ClusterInventory(settings.INSTALL_ID)
        self._images = ImageInventory()
        if self._buffer.weight > CLUSTER_BYTES // 4:
            self._buffer, self._times = Buffer(settings.INSTALL_ID), Times()
        self._account.release()
        logger.warning("cluster %s: %s", self._cluster_id, reason)
        try:
            await self._in_database(clusters.operations.record_size, self._cluster_id, reason)
            self._is_too_large = True
        except Exception:
            logger.exception("cluster %s is too large, which could not be recorded", self._cluster_id)

    async def _follow_devices(self, events: AsyncIterator[WatchEvent], take: Callable[[WatchEvent], None]) -> None:
        """Follows the devices that may be claimed. Without permission to read them, none counts, and everything else
        continues.
        """
        await self._check_identity()
        try:
            async for event in events:
                if event.kind == "listed":
                    self._inventory.see_classes(await self._driver.device_classes())
                take(event)
                self._weigh()
                if self._inventory.sees_devices:
                    await self._tell_access("")
        except Refused as error:
            if error.status != FORBIDDEN:
                raise
            self._inventory.close_devices()
            self._alive_at.update(dict.fromkeys(("slices", "claims"), clock.monotonic()))
            await self._tell_access(error.reason)
            raise

    async def _tell_access(self, reason: str) -> None:
        if reason != self._told_of_devices:
            await self._in_database(clusters.operations.record_device_access, self._cluster_id, reason)
            self._told_of_devices = reason

    async def _check_identity(self) -> None:
        if not await self._is_the_same():
            await self._in_database(self._record_stranger)
            raise ClusterChanged

    async def _is_the_same(self) -> bool:
        try:
            return await self._driver.identity() == self._identity
        except IdentityRefused:
            return False

    def _record_stranger(self) -> None:
        told = "Another cluster answers at this address: the uid of its kube-system namespace differs."
        clusters.operations.record_silence(self._cluster_id, told, code="identity_changed")

    def _take_nodes(self, event: WatchEvent) -> None:
        self._alive_at["nodes"] = clock.monotonic()
        nodes = only(NodeSeen, event.objects)
        self._inventory.see_nodes(event.kind, nodes)
        self._images.see_nodes(event.kind, nodes)

    def _take_pods(self, event: WatchEvent) -> None:
        self._alive_at["pods"] = clock.monotonic()
        pods = only(PodSeen, event.objects)
        self._inventory.see_pods(event.kind, pods)
        self._images.see_pods(event.kind, pods)
        if self._unrecorded_since is None:
            self._unrecorded_since = clock.monotonic()
        self._buffer.add_pods(event)

    def _take_slices(self, event: WatchEvent) -> None:
        self._alive_at["slices"] = clock.monotonic()
        self._inventory.see_slices(event.kind, only(SliceSeen, event.objects))

    def _take_claims(self, event: WatchEvent) -> None:
        self._alive_at["claims"] = clock.monotonic()
        self._inventory.see_claims(event.kind, only(ClaimSeen, event.objects))
        self._buffer.add_claims(event)
        self._news.set()

    def _take_jobs(self, event: WatchEvent) -> None:
        self._buffer.add_jobs(event)
        self._is_listed_anew |= event.kind == "listed"

    async def _record(self) -> None:
        """Writes new reports, at most every 50 ms: many changes together cost little more than one."""
        took = 0.0
        while True:
            await self._news.wait()
            await asyncio.sleep(max(RECORD_SECONDS, took))
            self._news.clear()
            if self._is_listed_anew:
                # Objects that vanished while no watch was open have no event: rows and cluster must be compared.
                await self._in_database(operations.ask_for_reconciliation, self._cluster_id)
                self._is_listed_anew = False
            began = clock.monotonic()
            if not self._buffer:
                self._unrecorded_since = None
                continue
            taken = self._buffer.take()
            try:
                if self._times.are_doubtful(taken, clock.monotonic()):
                    # While the clock cannot be read, the pulse fails too, and the cluster counts as silent.
                    await self._read_clock()
                await self._in_database(operations.record_observations, self._cluster_id, taken)
                self._times.note_recorded(taken)
                self._unrecorded_since = began if self._buffer else None
                took = clock.monotonic() - began
            except BaseException:
                self._buffer.give_back(taken)
                self._news.set()
                raise

    async def _record_inventory(self) -> None:
        """Writes the inventory if it has changed, at most every second, and for at most a tenth of the time."""
        took = 0.0
        while True:
            await asyncio.sleep(max(INVENTORY_SECONDS, 9 * took))
            self._account.check()
            began = clock.monotonic()
            if self._inventory.dirty:
                await self._write_inventory()
            took = clock.monotonic() - began

    async def _write_inventory(self) -> None:
        """Writes the inventory; if only the usage of some nodes has changed, it writes only that."""
        use = self._inventory.changed_use()
        try:
            if use is not None:
                await self._in_database(clusters.operations.record_use, self._cluster_id, use)
                return
            taken = self._inventory.snapshot()
            seen = (taken.nodes, taken.foreign, taken.used_devices, taken.claimable)
            await self._in_database(clusters.operations.record_inventory, self._cluster_id, *seen)
            if self._is_too_large is not False:
                await self._in_database(clusters.operations.record_size, self._cluster_id, "")
                self._is_too_large = False
        except BaseException:
            self._inventory.mark_dirty()
            raise

    async def _record_images(self) -> None:
        """Writes the counts of images if some have changed, and the pulls that have ended, at most every 30 s and for at
        most a tenth of the time.
        """
        took = 0.0
        while True:
            await asyncio.sleep(max(IMAGES_SECONDS, 9 * took))
            began = clock.monotonic()
            if self._inventory.is_complete:
                await self._count_images()
                await self._learn_pulls()
            took = clock.monotonic() - began

    async def _count_images(self) -> None:
        followed = await self._in_database(followed_images)
        now = clock.monotonic()
        if self._counted is not None and not self._images.has_changed:
            before, at = self._counted
            if followed == before and (not followed.names or now - at < RECOUNT_SECONDS):
                return
        self._counted = None
        seen = self._images.snapshot()
        change = await self._in_database(clusters.operations.record_images, self._cluster_id, seen, *followed)
        if not change.unknown_nodes:
            self._counted = followed, now

    async def _learn_pulls(self) -> None:
        pulls = self._images.take_pulls()
        try:
            if pulls:
                await self._in_database(clusters.operations.record_pulls, self._cluster_id, pulls)
        except BaseException:
            self._images.give_back(pulls)
            raise

    async def _keep_pulse(self) -> None:
        # The feeds of a process begin together. After a random first pause, their pulses are spread over the time.
        pause = PULSE_SECONDS * host().chance().random()
        while True:
            await self._beat()
            _end_if_cancelled()
            await asyncio.sleep(pause)
            pause = PULSE_SECONDS

    async def _beat(self) -> None:
        try:
            await self._read_clock()
        except ClusterChanged:
            return  # which is recorded
        except AuthFailed as error:
            await self._in_database(clusters.operations.record_auth_failure, self._cluster_id, error.reason)
        except DriverError as error:
            self._missed += 1
            if self._missed >= PULSES_MISSED:
                await self._in_database(clusters.operations.record_silence, self._cluster_id, error.reason)

    async def _read_clock(self) -> None:
        """Makes contact with the cluster, and records how far its clock is ahead. Raises DriverError if it fails."""
        await self._check_identity()
        origin, began = clock.monotonic_origin(), clock.monotonic()
        skew_ms = await self._driver.clock_skew_ms()
        self._missed = 0
        was_set = abs(clock.monotonic_origin() - origin) > CLOCK_WAS_SET
        await self._in_database(self._record_contact, None if was_set else skew_ms, origin)
        if not was_set:
            self._times.see_clock(Reading(origin + timedelta(seconds=began, milliseconds=skew_ms), began))

    def _record_contact(self, skew_ms: int | None, origin: datetime) -> None:
        """Without the skew where our own clock was set while the cluster's was read. The cluster counts as observed only
        until its oldest report that is not recorded: a pod whose end waits here must not be metered further.
        """
        known_until = [*self._alive_at.values(), *([] if self._unrecorded_since is None else [self._unrecorded_since])]
        ago = clock.monotonic() - min(known_until) if self._inventory.is_complete else None
        clusters.operations.record_contact(
            self._cluster_id, clock_skew_ms=skew_ms, origin=origin, observed_seconds_ago=ago
        )

    async def _in_database(self, work: Callable[..., Result], *args: Any) -> Result:
        """Runs one piece of work at a time: a cluster never uses more than one of the threads that
        all clusters share.
        """
        async with self._writing:
            return await asyncio.wrap_future(self._database.submit(self._fenced, work, args))

    def _fenced(self, work: Callable[..., Result], args: Sequence[Any]) -> Result:
        """Runs the work only while the lease is held, so that late writes of an observer are dropped."""
        with self._tenure.fence():
            return work(*args)


def _end_if_cancelled() -> None:
    """Raises CancelledError if this task was cancelled: an error that was raised at the same moment must not hide it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
