"""The observer's main loop: holds the leases of its share of the clusters, and follows these clusters."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

import clusters.operations
import clusters.queries
from clusters.drivers import DriverError
from clusters.drivers.connections import open_driver
from clusters.models import Cluster
from federation.queries.standstill import comparisons_in_standstills
from foundation import leases
from foundation.host import host
from foundation.ids import new_id
from foundation.leases import LeaseLost, Tenure
from foundation.threads import open_threads

from .feed import Feed

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
LEASE_SECONDS = 15
ROUND_SECONDS = 2.0
DATABASE_THREADS = 4
PRESENT = "observer:"


@dataclass(frozen=True, slots=True)
class _Followed:
    """The parameters of a feed: if any of them changes, a new feed is made."""

    cluster_id: UUID
    tenure: Tenure
    address: str
    identity: str


@dataclass(frozen=True, slots=True)
class _Held:
    """The observer's own presence, and its leases of clusters, token by name."""

    presence: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    surplus: Mapping[str, int] = field(default_factory=dict)
    """Leases beyond its share, which are returned as soon as nothing is followed under them."""
    clusters: frozenset[_Followed] = frozenset()
    compared: Mapping[UUID, tuple[int, int]] = field(default_factory=dict)
    """See `comparisons_in_standstills`."""


class Observer:
    """Follows clusters until cancelled. Any number of observers may run: each follows its share of the clusters."""

    def __init__(self) -> None:
        self._holder = f"{host().seat()}:{new_id()}"
        self._database = open_threads("observer-database", DATABASE_THREADS)
        self._held = _Held()
        self._asking: asyncio.Future[_Held] | None = None
        self._followed: dict[_Followed, asyncio.Task[None]] = {}
        self._feeds: dict[_Followed, Feed] = {}

    async def run(self) -> None:
        """One round every two seconds: renews, takes or returns leases, and starts and stops feeds accordingly."""
        try:
            while True:
                try:
                    await self._round()
                except Exception:
                    logger.exception("the observer's round failed; trying again")
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            await self._leave()

    async def _round(self) -> None:
        # Only one at a time, and never lost: the leases that it has taken must be returned.
        held = self._held
        self._asking = asyncio.ensure_future(self._in_database(lambda: self._hold(held)))
        self._held = await asyncio.shield(self._asking)
        await self._stop({key for key, task in self._followed.items() if key not in self._held.clusters or task.done()})
        if self._held.surplus:
            surplus = self._held.surplus
            await self._in_database(lambda: leases.release_all(surplus))
        for key, feed in self._feeds.items():
            if held.compared.get(key.cluster_id) != self._held.compared.get(key.cluster_id):
                feed.list_pods_anew()
        for key in self._held.clusters:
            if key not in self._followed:
                await self._follow(key)

    async def _follow(self, key: _Followed) -> None:
        try:
            address = await self._in_database(lambda: clusters.queries.address_of_registered(key.cluster_id))
        except DriverError as error:
            reason = error.reason
            await self._in_database(lambda: _record_silence(key, reason))
            return
        feed = Feed(key.cluster_id, key.identity, open_driver(address), self._database, key.tenure)
        self._feeds[key], self._followed[key] = feed, asyncio.create_task(feed.run())

    def _hold(self, before: _Held) -> _Held:
        """The leases that we hold now: renewed earlier ones, at most our share, and new ones up to it."""
        presence = self._be_present(before.presence)
        rows = Cluster.objects.order_by("id").values_list("id", "identity", "server", "credential__updated_at")
        standing = {
            _lease(cluster_id): (cluster_id, identity, f"{server} {at}") for cluster_id, identity, server, at in rows
        }
        share = -(-len(standing) // max(leases.count_held(PRESENT), 1))
        tokens = leases.renew_all(before.tokens, ttl_seconds=LEASE_SECONDS)
        kept = {name: token for name, token in tokens.items() if name in standing}
        kept = dict(list(kept.items())[:share])
        surplus = {name: token for name, token in tokens.items() if name not in kept}
        if len(kept) < share:
            free = [name for name in standing if name not in tokens]
            kept |= leases.acquire_free(free, self._holder, ttl_seconds=LEASE_SECONDS, most=share - len(kept))
        followed = frozenset(
            _Followed(cluster_id, Tenure(name, kept[name]), address, identity)
            for name, (cluster_id, identity, address) in standing.items()
            if name in kept
        )
        return _Held(presence, kept, surplus, followed, comparisons_in_standstills())

    def _be_present(self, token: int | None) -> int | None:
        name = PRESENT + self._holder
        if token is not None and leases.renew(name, token, ttl_seconds=LEASE_SECONDS):
            return token
        return leases.acquire(name, self._holder, ttl_seconds=LEASE_SECONDS)

    async def _leave(self) -> None:
        """Stops following and returns all leases, also those that a round in progress has just taken."""
        await self._stop(set(self._followed))
        if self._asking is not None:
            [held] = await asyncio.gather(self._asking, return_exceptions=True)
            self._held = held if isinstance(held, _Held) else self._held
        held = self._held
        presence = {PRESENT + self._holder: held.presence} if held.presence is not None else {}
        try:
            await self._in_database(lambda: leases.release_all({**held.surplus, **held.tokens, **presence}))
        except Exception:
            logger.exception("the leases could not be given back; they expire")
        self._database.close()

    async def _stop(self, keys: set[_Followed]) -> None:
        tasks = [self._followed.pop(key) for key in keys]
        for key in keys:
            del self._feeds[key]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _in_database(self, work: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self._database.submit(work))


def _lease(cluster_id: UUID) -> str:
    return f"observe:{cluster_id}"


def _record_silence(key: _Followed, reason: str) -> Any:
    try:
        with key.tenure.fence():
            return clusters.operations.record_silence(key.cluster_id, reason)
    except LeaseLost:
        return None
