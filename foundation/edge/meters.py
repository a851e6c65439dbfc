"""How many requests a caller may send: token buckets by source address, by credential, for strangers and for tries to sign in.

All of it lives in one process: a bucket in the database would cost every request a write. So with W web workers (and R
replicas) a caller may send at most W × R times what is set, which the settings' page says. Only the rate of tries to
sign in is shared out among the W: a password looked at costs more than a hundred other requests.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

MOST_BUCKETS = 20_000
KNOWN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests a second, of which each caller may save up `burst_seconds`, and tries to sign in. 0 means without a limit."""

    source: int = 500
    credential: int = 500
    stranger: int = 5
    burst_seconds: int = 5
    sign_ins_a_minute: int = 20
    """A quarter of them may come at once. A look at a password costs a quarter of a second of a core, whoever asks for it."""


class Buckets:
    """One token bucket a key, full at first. Holds at most MOST_BUCKETS: those asked longest ago are forgotten."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """0 when the key had a token, which is gone now; otherwise the seconds until it has one."""
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
    """What one request took, so that its answer can tell whether that was right."""

    source: str
    credential: str
    lent: Buckets | None = None
    """Where its token goes back to if the application lets the credential in."""


@dataclass(slots=True)
class Meter:
    """Judges each request by its head, before it costs a thread.

    A credential that the application has let in lately has a bucket of its own. Any other request is a stranger's: made-up
    tokens are worth no more than none. Tries to sign in have a bucket for each source, whatever they carry, so that a guesser
    leaves the pages to the others behind its address.
    """

    rates: Rates
    processes: int = 1
    """How many serve the same address: what they let through of tries to sign in adds up to the rate that is set."""
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
        """A ticket, or the seconds to wait. What is free (static files) counts for its source alone."""
        wait = self._sources.take(source, now)
        if wait or is_free:
            return wait or Ticket(source, "")
        if is_sign_in:
            return self._tries.take(source, now) or Ticket(source, "")
        if credential and self._known.get(credential, 0.0) > now:
            return self._credentials.take(credential, now) or Ticket(source, credential)
        return self._strangers.take(source, now) or Ticket(source, credential, lent=self._strangers)

    def note_known(self, ticket: Ticket, now: float) -> None:
        """The application has let the credential in."""
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
