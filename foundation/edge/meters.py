"""The request rate of callers: token buckets by source address and credential, for strangers, and for attempts to sign
in.

All buckets live in one process: a bucket in the database would add a write to every request. So with W web workers (and
R replicas) a caller may send at most W × R times the configured rate, as the settings' page says. Only the rate of
attempts to sign in is divided among the W: checking a password costs more than a hundred other requests.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

MOST_BUCKETS = 20_000
KNOWN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second, of which each caller may accumulate `burst_seconds`, and attempts to sign in. 0 means no
    limit.
    """

    source: int = 500
    credential: int = 500
    stranger: int = 5
    burst_seconds: int = 5
    sign_ins_a_minute: int = 20
    """A quarter of them may come at the same time. Checking a password takes a quarter of a second of a core."""


class Buckets:
    """One token bucket per key, initially full. At most MOST_BUCKETS: the least recently used are dropped."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """0 if the key had a token, which it takes; otherwise the seconds until it has one."""
        if self.rate <= 0:
            return 0.0
        level = self._level(key, now)
        if level < 1:
            return (1 - level) / self.rate
        self._put(key, level - 1, now)
        return 0.0

    def give_back(self, key: str, now: float) -> None:
        """Returns a token that should not have been taken."""
        if self.rate > 0:
            self._put(key, min(self.burst, self._level(key, now) + 1), now)

    def _level(self, key: str, now: float) -> float:
        level, at = self._levels.get(key, (self.burst, now))
        return min(self.burst, level + max(0.0, now - at) * self.rate)

    def _put(self, key: str, level: float, now: float) -> None:
        self._levels[key] = (level, now)
        self._levels.move_to_end(key)
        if len(self._levels) > MOST_BUCKETS:
            self._levels.popitem(last=False)


@dataclass(slots=True)
class Ticket:
    """What one request took, so that the response can confirm or return it."""

    source: str
    credential: str
    lent: Buckets | None = None
    """The bucket that gets its token back if the application accepts the credential."""


@dataclass(slots=True)
class Meter:
    """Limits each request by its head, before it takes a thread.

    A credential that the application recently accepted has its own bucket. Any other request counts as a stranger's, so
    invalid tokens get no more than no token. Attempts to sign in have a bucket for each source, whatever they carry, so
    that guessing passwords does not block the pages for others at the same address.
    """

    rates: Rates
    processes: int = 1
    """The number of workers at the same address: together they allow the configured rate of attempts to sign in."""
    _sources: Buckets = field(init=False)
    _credentials: Buckets = field(init=False)
    _strangers: Buckets = field(init=False)
    _tries: Buckets = field(init=False)
    _known: OrderedDict[str, float] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        rates = self.rates
        self._sources = Buckets(rates.source, rates.source * rates.burst_seconds)
        self._credentials = Buckets(rates.credential, rates.credential * rates.burst_seconds)
        self._strangers = Buckets(rates.stranger, rates.stranger * rates.burst_seconds)
        self._tries = Buckets(rates.sign_ins_a_minute / 60 / self.processes, max(1, rates.sign_ins_a_minute / 4))

    def admit(self, source: str, credential: str, *, is_sign_in: bool, is_free: bool, now: float) -> Ticket | float:
        """A ticket, or the seconds to wait. Free requests (static files) count only for their source."""
        wait = self._sources.take(source, now)
        if wait or is_free:
            return wait or Ticket(source, "")
        if is_sign_in:
            return self._tries.take(source, now) or Ticket(source, "")
        if credential and self._known.get(credential, 0.0) > now:
            return self._credentials.take(credential, now) or Ticket(source, credential)
        return self._strangers.take(source, now) or Ticket(source, credential, lent=self._strangers)

    def note_known(self, ticket: Ticket, now: float) -> None:
        """The application has accepted the credential."""
        if not ticket.credential:
            return
        if ticket.lent:
            ticket.lent.give_back(ticket.source, now)
        self._known[ticket.credential] = now + KNOWN_SECONDS
        self._known.move_to_end(ticket.credential)
        if len(self._known) > MOST_BUCKETS:
            self._known.popitem(last=False)

    def note_unknown(self, ticket: Ticket) -> None:
        """The application has refused the credential."""
        self._known.pop(ticket.credential, None)
