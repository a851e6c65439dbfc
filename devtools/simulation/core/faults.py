"""What goes wrong in a run: each seed switches on some kinds of faults, each at its own rate."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

RATES: Mapping[str, tuple[float, ...]] = {
    # calls to clusters
    "lost": (0.02, 0.1),
    "unreachable": (0.02, 0.1),
    "reply_lost": (0.05, 0.2),
    "answered_500": (0.05, 0.2),
    "delayed": (0.02, 0.1),
    "repeated": (0.05, 0.2),
    "throttled": (0.05, 0.2),
    "unavailable": (0.05, 0.2),
    "forbidden": (0.02, 0.1),
    "refused": (0.02, 0.1),
    "slow": (0.05, 0.2),
    # watches
    "watch_broken": (0.02, 0.1),
    "watch_skips_delete": (0.1, 0.5),
    "watch_repeats": (0.1, 0.5),
    "watch_goes_back": (0.02, 0.1),
    "watch_stalls": (0.02, 0.1),
    # the database
    "commit_lost_done": (0.002, 0.02),
    "commit_lost_not_done": (0.002, 0.02),
    "statement_lost": (0.001, 0.005),
    # processes, per step
    "death": (0.0005, 0.003),
    # messages
    "bell_lost": (0.1, 0.5),
    "bell_tripled": (0.1, 0.5),
    "bell_late": (0.1, 0.5),
    # events of a world, expected number per run
    "freeze": (1.0, 3.0),
    "cut_off": (0.5, 1.5),
    "watches_dead": (0.5, 1.0),
    "node_dies": (0.5, 1.0),
    "eviction": (0.5, 2.0),
    "image_missing": (0.2, 0.6),
    "stranger_deletes": (0.5, 1.5),
    "stranger_edits": (0.5, 1.5),
    "restored": (0.3, 1.0),
    "rebuilt": (0.3, 0.7),
    "clock_jumps": (1.0, 3.0),
    "clocks_differ": (1.0, 1.0),
    "limit_cut": (0.5, 1.5),
    "drained": (0.5, 1.0),
    "cordoned": (0.5, 1.0),
    "price_changed": (0.5, 2.0),
    "credential_revoked": (0.5, 1.0),
    "database_restored": (0.3, 0.7),
    "stranger_plants": (1.0, 3.0),
    "stranger_copies": (0.5, 1.0),
    "kueue_reclaims": (0.5, 2.0),
    "flavor_renamed": (0.3, 0.7),
    "tenant_moved": (0.5, 2.0),
    "limits_changed": (0.5, 2.0),
    "policy_changed": (0.5, 2.0),
    "reserved": (0.5, 1.5),
    "egress_changed": (0.5, 1.5),
    "proved": (0.5, 1.5),
    "cluster_removed": (0.2, 0.4),
    "cluster_destroyed": (0.2, 0.4),
    "list_lacks": (0.05, 0.3),
    "name_taken": (0.05, 0.3),
    "uid_lies": (0.05, 0.3),
    # policy hooks, per job
    "hook_changes": (0.3, 1.0),
    "hook_refuses": (0.1, 0.3),
    "hook_fails": (0.1, 0.5),
    # events
    "orphans_planted": (0.3, 0.6),
    "emptied": (0.2, 0.5),
    # calls to clusters
    "service_name_taken": (0.05, 0.3),
    # events
    "releases_refused": (0.3, 0.7),
    "dispatch_closed": (0.3, 0.7),
    # per step of a dispatch
    "late": (0.002, 0.01),
    # events
    "maintained": (0.5, 2.0),
    "budget_changed": (0.5, 2.0),
    "catalogue_changed": (1.0, 3.0),
    "asked_wrongly": (1.0, 3.0),
    # calls to clusters
    "wishes_refused": (0.3, 1.0),
    "gate_forbidden": (0.1, 0.5),
    "gate_refused": (0.1, 0.3),
    # events
    "rows_spoiled": (0.2, 0.5),
    "spot_notice": (0.5, 1.5),
    "programs_report": (0.5, 2.0),
    # calls to clusters
    "release_unheard": (0.1, 0.5),
    # per restore of the database
    "unannounced": (0.3, 1.0),
    # events
    "restored_over_run": (0.5, 1.0),
    "bulk_asked": (0.5, 1.5),
    "asked_in_vain": (0.5, 1.5),
    "pods_hidden": (0.5, 1.0),
    "supplied": (1.0, 3.0),
    "requests_hang": (0.5, 1.0),
    "right_lacks": (0.5, 1.5),
    "rows_refused": (0.5, 1.0),
    "pressed": (1.0, 3.0),
    "tree_applied": (0.5, 1.5),
    "quota_asked": (0.5, 1.0),
    "limits_shaped": (0.5, 1.0),
    # from the beginning on
    "nodes_kill": (1.0, 1.0),
    "month_ends": (0.5, 1.0),
    # per statement of a round that locks jobs or attempts
    "overtaken": (0.02, 0.1),
    # from the beginning on
    "logs_decide": (1.0, 1.0),
    "budgeted": (1.0, 1.0),
    "room_kept": (1.0, 1.0),
    "exchanged": (1.0, 1.0),
    # events
    "prepulled": (1.0, 3.0),
    # from the beginning on
    "consolidated": (1.0, 1.0),
    # events
    "staged": (1.0, 3.0),
    # when accountants work
    "committed": (1.0, 1.0),
    # per deletion by a stranger, and per hanging webhook
    "deletes_behind": (0.5, 1.0),
    "hangs_long": (0.3, 1.0),
    # events
    "attached": (1.0, 3.0),
    "previewed": (1.0, 2.0),
    # from the beginning on
    "elastic": (1.0, 1.0),
    # per visit to an attempt that may be committed to
    "window_passes": (0.3, 0.7),
    # per release
    "cut_at_release": (0.05, 0.2),
    # from the beginning on
    "saved": (1.0, 1.0),
    # when accountants work
    "emitted": (1.0, 1.0),
    # events
    "opened": (1.0, 2.0),
    "stored": (1.0, 2.0),
    "silenced": (1.0, 2.0),
    # per release of a gang
    "room_taken": (0.3, 1.0),
    # events
    "asked_amiss": (1.0, 3.0),
    "stops_wait": (1.0, 3.0),
}
"""The kinds of faults, and the rates among which a seed chooses."""
CALLS = (
    "lost", "unreachable", "reply_lost", "answered_500", "delayed", "repeated", "throttled", "unavailable", "forbidden",
    "refused", "slow",
)  # fmt: skip
EVENTS = (
    "freeze", "cut_off", "watches_dead", "node_dies", "eviction", "stranger_deletes", "stranger_edits", "restored", "rebuilt",
    "clock_jumps", "limit_cut", "drained", "cordoned",
    "price_changed", "credential_revoked", "database_restored",
    "stranger_plants", "stranger_copies", "kueue_reclaims", "flavor_renamed", "tenant_moved", "limits_changed", "policy_changed",
    "reserved", "egress_changed", "proved", "cluster_removed", "cluster_destroyed",
    "orphans_planted", "emptied", "releases_refused", "dispatch_closed", "maintained", "budget_changed", "catalogue_changed",
    "asked_wrongly", "rows_spoiled", "spot_notice", "programs_report", "restored_over_run", "bulk_asked", "asked_in_vain",
    "pods_hidden", "supplied", "requests_hang", "right_lacks", "rows_refused", "pressed",
    "tree_applied", "quota_asked", "limits_shaped", "prepulled", "staged", "attached", "previewed", "opened", "stored",
    "silenced", "asked_amiss", "stops_wait",
)  # fmt: skip
PROBABLE = 0.4
"""The share of the kinds that a seed switches on."""
SELDOM: Mapping[str, float] = {
    "restored_over_run": 0.25,
    "pods_hidden": 0.15,
    "requests_hang": 0.15,
    "nodes_kill": 0.08,
    "overtaken": 0.2,
    "logs_decide": 0.12,
    "budgeted": 0.2,
    "room_kept": 0.12,
    "consolidated": 0.12,
    "hangs_long": 0.25,
    "saved": 0.2,
    "room_taken": 0.12,
}
"""Kinds whose worlds take longer, or in which little else happens: the share of the seeds that have them."""
CALM = 0.05
"""The share of seeds without faults."""


class Faults:
    """The faults of one run: drawn by the seed, or `chosen`. When the world heals, there are no more."""

    def __init__(
        self,
        seed: int,
        without: Sequence[str] = (),
        spared: Collection[int] = (),
        only: Sequence[str] = (),
        chosen: Mapping[str, float] | None = None,
        share: float = 1.0,
    ) -> None:
        """`share`: how many of the kinds that a seed draws are switched on."""
        self._chance = random.Random(f"{seed}/faults")
        swarm = random.Random(f"{seed}/swarm")
        calm = swarm.random() < CALM
        drawn = {
            kind: (swarm.random() < share * SELDOM.get(kind, PROBABLE), swarm.choice(rates))
            for kind, rates in RATES.items()
        }
        self.rates = {kind: rate for kind, (is_on, rate) in drawn.items() if is_on and not calm and kind not in without}
        if chosen is not None:
            self.rates = {kind: rate for kind, rate in chosen.items() if kind not in without}
        elif only:
            self.rates = {kind: max(RATES[kind]) for kind in only if kind not in without}
        self._spared = frozenset(spared)
        self.count = 0
        self.is_healed = False
        self.happened: Counter[str] = Counter()

    def happens(self, kind: str) -> bool:
        """Whether this fault happens now."""
        rate = self.rates.get(kind, 0.0)
        if self.is_healed or not rate or self._chance.random() >= rate:
            return False
        return self.befalls(kind)

    def befalls(self, kind: str) -> bool:
        """Counts a fault that happens now; False if the world is spared it."""
        self.count += 1
        if self.count - 1 in self._spared:
            return False
        self.happened[kind] += 1
        return True

    def first(self, kinds: Sequence[str]) -> str:
        """The first of these that happens now; empty if none does."""
        return next((kind for kind in kinds if self.happens(kind)), "")

    def between(self, low: float, high: float) -> float:
        """A number for a fault."""
        return self._chance.uniform(low, high)

    def events(self) -> list[str]:
        """The events of this world, in the order in which they happen."""
        found = []
        for kind in EVENTS:
            rate = self.rates.get(kind, 0.0)
            while rate > 0 and self._chance.random() < rate:
                found.append(kind)
                rate -= 1
        self._chance.shuffle(found)
        return found

    def choose(self, things: Sequence[object]) -> int:
        """The position of one of these things."""
        return self._chance.randrange(len(things))
