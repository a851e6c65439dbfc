"""How much memory this process uses for clusters' data. All limits are fixed; docs/explanation/memory.md adds them up.

Reading more than a small amount takes one of a few turns, so any number of clusters together use a bounded amount. Data
that is kept is charged to accounts, in estimated bytes: there is a limit per cluster and one for all of them.
"""

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .port import TooMuch

MIB = 1024 * 1024
FREE_BYTES = 64 * 1024
"""What a response, or one event of a watch, may read without a turn."""
TURNS = 8
TURN_SECONDS = 60.0
CLUSTER_BYTES = 192 * MIB
PROCESS_BYTES = 320 * MIB

_turns: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = weakref.WeakKeyDictionary()


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """One of the few turns for reading something large. Raises TooMuch if none becomes free in time."""
    loop = asyncio.get_running_loop()
    places = _turns.setdefault(loop, asyncio.Semaphore(TURNS))
    try:
        async with asyncio.timeout(TURN_SECONDS):  # `wait_for` may lose a cancellation in Python 3.11
            await places.acquire()
    except TimeoutError:
        raise TooMuch("too many large answers of clusters are being read at the same time") from None
    try:
        yield
    finally:
        places.release()


class Account:
    """The data kept of one cluster for one purpose, in estimated bytes. Its opener releases it."""

    def __init__(self, bank: "Bank | None" = None) -> None:
        self._bank = bank or BANK
        self.held = 0
        self.is_over = False
        self._bank.open(self)

    def hold(self, size: int) -> None:
        """Sets the amount that is kept now. Raises TooMuch if it exceeds one cluster's share or what is left of the
        process' limit.
        """
        self._bank.total += size - self.held
        self.held = size
        if size > CLUSTER_BYTES:
            raise TooMuch(f"it reports more than the {CLUSTER_BYTES // MIB} MiB that the gateway keeps for one cluster")
        if self._bank.total > PROCESS_BYTES:
            self._bank.make_room(self)
        self.check()

    def check(self) -> None:
        """Raises TooMuch if others need the room and this account is the largest."""
        if self.is_over:
            raise TooMuch(
                f"all clusters together report more than the {PROCESS_BYTES // MIB} MiB that one process keeps, and it reports most"
            )

    def put_back(self, size: int) -> None:
        """Reduces the amount that is kept."""
        self._bank.total -= size
        self.held -= size
        self.is_over &= self.held > 0

    def release(self) -> None:
        """Sets the amount to zero."""
        self.put_back(self.held)


class Bank:
    """The accounts of one process."""

    def __init__(self) -> None:
        self.total = 0
        self._accounts: weakref.WeakSet[Account] = weakref.WeakSet()

    def open(self, account: Account) -> None:
        """Adds an account."""
        self._accounts.add(account)

    def make_room(self, asking: Account) -> None:
        """Asks the largest account to release its data."""
        if any(account.is_over and account.held for account in self._accounts):
            return  # one is already being released
        holders = list(self._accounts)
        largest = max(holders, key=lambda account: account.held, default=asking)
        largest.is_over = True


BANK = Bank()
