"""The observer's main loop: takes the lease of each cluster it can get, and follows those it holds."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import UUID

import clusters.operations
import clusters.queries
from clusters.drivers import DriverError
from clusters.drivers.connections import open_driver
from clusters.models import Cluster
from foundation import leases
from foundation.threads import DatabaseThreads

from .feed import Feed

logger = logging.getLogger(__name__)
LEASE_SECONDS = 15
ROUND_SECONDS = 2.0
DATABASE_THREADS = 4


class Observer:
    """Follows clusters until cancelled. Any number of observers may run: leases share the clusters out."""

    def __init__(self) -> None:
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._database = DatabaseThreads("observer-database", DATABASE_THREADS)
        self._tokens: dict[UUID, int] = {}
        self._followed: dict[tuple[UUID, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """One round every two seconds: renew or take leases, start and stop feeds accordingly."""
        try:
            while True:
                try:
                    await self._round()
                except Exception:
                    logger.exception("the observer's round failed; trying again")
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            await self._stop(set(self._followed))
            await self._in_database(self._release)
            self._database.close()

    async def _round(self) -> None:
        held = await self._in_database(self._held_clusters)
        await self._stop({key for key, task in self._followed.items() if key not in held or task.done()})
        for key, identity in held.items():
            if key not in self._followed:
                await self._follow(key, identity)

    async def _follow(self, key: tuple[UUID, str], identity: str) -> None:
        cluster_id, _ = key
        try:
            address = await self._in_database(lambda: clusters.queries.address_of_registered(cluster_id))
        except DriverError as error:
            reason = error.reason
            await self._in_database(lambda: clusters.operations.record_silence(cluster_id, reason))
            return
        feed = Feed(cluster_id, identity, open_driver(address), self._database)
        self._followed[key] = asyncio.create_task(feed.run())

    def _held_clusters(self) -> dict[tuple[UUID, str], str]:
        """Identities of the clusters whose lease is ours now, keyed so that a changed address starts a new feed."""
        rows = Cluster.objects.order_by("id").values_list("id", "identity", "server", "credential__updated_at")
        return {
            (cluster_id, f"{server} {credential_at}"): identity
            for cluster_id, identity, server, credential_at in rows
            if self._holds(cluster_id)
        }

    def _holds(self, cluster_id: UUID) -> bool:
        name = f"observe:{cluster_id}"
        token = self._tokens.pop(cluster_id, None)
        if token is None or not leases.renew(name, token, ttl_seconds=LEASE_SECONDS):
            token = leases.acquire(name, self._holder, ttl_seconds=LEASE_SECONDS)
        if token is not None:
            self._tokens[cluster_id] = token
        return token is not None

    def _release(self) -> None:
        for cluster_id, token in self._tokens.items():
            leases.release(f"observe:{cluster_id}", token)

    async def _stop(self, keys: set[tuple[UUID, str]]) -> None:
        tasks = [self._followed.pop(key) for key in keys]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _in_database(self, work: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._database.submit(work))
