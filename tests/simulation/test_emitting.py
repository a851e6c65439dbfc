"""The judge of imported numbers for emissions objects to what was lost, doubled, or is of no usage, and to nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest

IMPORTED = ("sites", "acme", "east", "june", "FR", 1200)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as imported": ({}, ""),
    "corrected since": ({"sites": [("acme", "east", "june", "FR", 1200), ("acme", "east", "june", "DE", 1200)], "said": 2}, ""),
    "lost": ({"sites": [("acme", "east", "july", "FR", 1200)]}, "is not there"),
    "said again": ({"sites": [("acme", "east", "june", "FR", 1200)] * 2, "said": 2}, "again"),
    "more than the trail says": ({"said": 0}, "by the trail"),
    "measured without usage": ({"unmetered": [("pod-1", "noon")]}, "energy of pod-1"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "says"), CASES.values(), ids=CASES)
def test_what_was_imported_is_there_once_and_the_trail_says_so(given, says):
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.accounts import emitting as module  # noqa: PLC0415

    rows: dict[str, list[Any]] = {statement: [] for statement in module.STORED.values()}
    rows |= {
        module.STORED["sites"]: given.get("sites", [IMPORTED[1:]]),
        module.SAID: [("sites", given.get("said", 1))],
        module.UNMETERED: given.get("unmetered", []),
    }
    world: Any = SimpleNamespace(
        are_books_kept=True,
        faults=SimpleNamespace(rates={module.KIND: 1.0}),
        imported={IMPORTED},
        watch=SimpleNamespace(rows=lambda statement: rows[statement]),
    )
    said = module.promise_16_emissions_are_counted_from_what_was_imported(world)
    assert [bool(says)] == [says in " ".join(said) and bool(said)], said
