"""Seeds that broke a promise before a defect was mended. They always run. A change of the gateway may change what a seed
does, so each defect also has a separate test.
"""

from dataclasses import dataclass
from typing import Any

from devtools.simulation.setting.size import Size

NEWER = (
    "wishes_refused",
    "gate_forbidden",
    "gate_refused",
    "rows_spoiled",
    "spot_notice",
    "programs_report",
    "release_unheard",
    "unannounced",
    "restored_over_run",
    "bulk_asked",
    "asked_in_vain",
    "pods_hidden",
    "supplied",
    "requests_hang",
    "right_lacks",
    "rows_refused",
    "pressed",
    "nodes_kill",
    "tree_applied",
    "quota_asked",
    "limits_shaped",
    "month_ends",
    "overtaken",
    "logs_decide",
    "budgeted",
    "room_kept",
    "exchanged",
    "prepulled",
    "consolidated",
    "staged",
    "committed",
    "deletes_behind",
    "hangs_long",
    "attached",
    "previewed",
    "elastic",
    "window_passes",
    "cut_at_release",
    "saved",
    "emitted",
    "opened",
    "stored",
    "silenced",
    "room_taken",
    "stops_wait",
)
"""Kinds of faults that are newer than the finds: without them, the seeds do what they did."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A seed, how it runs, and the mutant that puts the defect back which it found: then a judge must object again."""

    seed: int
    size: Size
    defect: str


def _before(kind: str, scale: str = "whole") -> Size:
    """All that there was before this kind of fault was added."""
    return Size(without=NEWER[NEWER.index(kind) :], scale=scale)


def _after(kind: str, **more: Any) -> Size:
    """All that there was when this kind of fault was the newest, in a small world."""
    return Size(without=NEWER[NEWER.index(kind) + 1 :], scale="small", **more)


KEPT: tuple[Kept, ...] = (
    Kept(21, _before("committed", "small"), "a_started_gang_is_not_released_on"),
    Kept(3, Size(only=("stranger_edits",), scale="small"), "what_lists_lack_is_not_read"),
    Kept(9, Size(only=("clocks_differ",), scale="small"), "an_observers_clock_dates_what_it_sees"),
    Kept(85200, _before("overtaken"), "removed_clusters_have_no_prices"),
    Kept(
        20,
        Size(only=("cut_off", "eviction", "node_dies", "stranger_deletes", "programs_report"), scale="small"),
        "what_lists_lack_was_seen_to_go",
    ),
    Kept(8039, _after("stored"), "what_cannot_be_stored_is_deleted"),
    Kept(8272, _after("stored", jobs=(0, 3), alone=True), "kept_nodes_are_no_excuse"),
)  # fmt: skip
