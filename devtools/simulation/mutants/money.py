"""Guards of the ledger, of shared costs, of quota's limits and of files of the tenant tree."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from billing.engine import ledger, shared_entries
from billing.operations import posting, sharing
from billing.operations.failures import FirstFailure
from billing.queries import charges
from devtools.simulation.core.swarm import Swarm, only
from federation.operations import settlement, tree

from . import Change, mutant

KEPT = Swarm(rates={}, chaos_seconds=(25.0, 60.0), keeps_books=True)
"""No faults, and accountants work in each world."""


@mutant(KEPT)
def _corrections_are_not_posted(change: Change) -> None:
    """A day whose price was corrected is not posted again."""
    original = ledger.postings

    def postings(key: Any, segments: Any, _: Any, standing: Any) -> Sequence[Any]:
        return original(key, segments, {}, standing)

    change.put(posting, "postings", postings)


@mutant(KEPT)
def _a_bad_day_ends_the_round(change: Change) -> None:
    """A day that cannot be posted keeps those after it from being posted."""

    class Failing(FirstFailure):
        @contextmanager
        def kept(self, what: str) -> Iterator[None]:  # noqa: ARG002 - as the original
            yield

    original = charges.days_to_post

    def days_to_post(*given: Any, **more: Any) -> list[Any]:
        return original(*given, **more)[::-1]

    change.put(posting, "FirstFailure", Failing)
    change.put(posting, "days_to_post", days_to_post)


@mutant(KEPT)
def _shares_are_posted_again(change: Change) -> None:
    """When a month is closed again, its earlier shares are not taken back."""
    original = shared_entries.missing_entries

    def missing_entries(*given: Any) -> tuple[Any, ...]:
        return tuple(entry for entry in original(*given) if entry.kind != "reversal")

    change.put(sharing, "missing_entries", missing_entries)


@mutant(only({"eviction": 3, "node_dies": 1}, keeps_books=True, cancels=0.0, run_seconds=(60, 200)))
def _lost_work_is_not_recorded(change: Change) -> None:
    """Settlement does not say what infrastructure lost, so all of it is charged."""
    change.put(settlement, "record_lost_work", lambda _: 0)


@mutant(only({"tree_applied": 3}))
def _a_plan_is_kept(change: Change) -> None:
    """A plan of a tree file makes its changes."""

    class Kept:
        def __getattr__(self, name: str) -> Any:
            return (lambda _: None) if name == "set_rollback" else getattr(transaction, name)

    change.put(tree, "transaction", Kept())


@mutant(only({"tree_applied": 3}))
def _any_plan_is_applied(change: Change) -> None:
    """A file is applied although its changes are others than those of the plan that was named."""
    original = tree._carried_out  # noqa: SLF001

    def carried_out(actor: Any, wanted: Any, *, prune: bool, expected: str) -> Any:  # noqa: ARG001 - as the original
        return original(actor, wanted, prune=prune, expected="")

    change.put(tree, "_carried_out", carried_out)
