"""The labels that an organisation's jobs must have: billing keeps them, this room knows what a label is."""

from collections.abc import Sequence
from datetime import date

from billing.models import RequiredLabels
from billing.operations.recommendations import MOST_KEYS, require_labels
from federation.engine import names
from foundation.problems import Invalid
from tenancy.queries import Actor


def set_required_labels(actor: Actor, path: str, effective_from: date, keys: Sequence[str]) -> RequiredLabels:
    """The labels from a day on; none: no label.

    Raises NotFound, NotAllowedHere, Invalid (`too_many`, `in_the_past`, `bad_format`, `reserved_prefix`).
    """
    for key in keys[: MOST_KEYS + 1]:
        fault = names.label_key_fault(key, allow_simulation=True)
        if fault is not None:
            raise Invalid.field("keys", *fault)
    return require_labels(actor, path, effective_from, keys)
