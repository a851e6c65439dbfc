"""Guards of submission, holds and usage."""

from collections.abc import Sequence
from typing import Any

import quotas.operations
from devtools.simulation.core.swarm import only
from federation.operations import endings, submission, true_ends
from federation.queries import metering
from tenancy.operations import answer_once

from . import Change, mutant


@mutant(only({"commit_lost_done": 0.1}))
def _keys_are_ignored(change: Change) -> None:
    """A repeated request is carried out again."""

    def ask_again(actor: Any, **given: Any) -> Any:
        return answer_once(actor, **given | {"key": ""})

    change.put(submission, "answer_once", ask_again)


@mutant(
    only({"watch_stalls": 0.5, "watch_broken": 0.1, "watches_dead": 3}, run_seconds=(1, 5)),
    guard="settle_waits_for_pods",
)
def _settles_before_the_pods_are_known(change: Change) -> None:
    """Ended attempts are settled with the pods that were seen so far."""
    guard = "pods.running = 0 AND (attempt.pods_told_at IS NOT NULL OR pods.over >= asked.due)"
    change.cut(metering, "WEIGH", guard, "pods.running = 0")
    for name in ("WEIGH_DUE", "WEIGH_THESE"):
        change.cut(metering, name, guard, "pods.running = 0")


@mutant(only({"pods_hidden": 3.0, "watches_dead": 3, "watch_stalls": 0.3}, run_seconds=(30, 400)))
def _late_ends_take_nothing_back(change: Change) -> None:
    """Usage that was assumed stays as it is, although a cluster reports later that its pods had ended before."""
    change.put(true_ends, "_correct", lambda ends: None)  # noqa: ARG005 - as the original


@mutant(only({"lost": 0.05, "reply_lost": 0.1, "death": 0.001}), guard="settle_waits_for_pods")
def _holds_end_with_the_attempt(change: Change) -> None:
    """The hold of an attempt ends when the attempt does, although its pods may still run."""
    original = endings._void_unstarted  # noqa: SLF001

    def void(ended: Sequence[Any]) -> None:
        quotas.operations.end_holds(dict.fromkeys((one.attempt.id for one in ended), "voided"))
        original(ended)

    change.put(endings, "_void_unstarted", void)
