"""Recommendations as sentences, from their evidence. All that they name is text of users: pages escape it, spreadsheets get it inert."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from billing.engine.realised import LEAST_UNITS, WhyNot
from billing.engine.recommendations import Kind

TITLES: Mapping[str, str] = {
    Kind.IDLE: "Idle jobs",
    Kind.LATE_FAILURES: "Jobs that fail late",
    Kind.SMALLER: "Smaller GPU or slice",
    Kind.CHEAPER: "Same GPU, cheaper place",
    Kind.SPOT: "Spot capacity",
    Kind.UNUSED_COMMITMENT: "Unused commitment",
    Kind.MISSING_LABEL: "Missing label",
}
NOT_MEASURED: Mapping[str, str] = {
    WhyNot.TOO_FEW_BEFORE: f"not measured: fewer than {LEAST_UNITS} jobs succeeded before",
    WhyNot.TOO_FEW_AFTER: f"not measured yet: fewer than {LEAST_UNITS} jobs succeeded since",
    WhyNot.OTHER_CURRENCY: "not measured: some jobs were charged in another currency, or without a price",
    WhyNot.SAVES_NOTHING: "not measured: labels save nothing",
}


def summary_of(kind: str, evidence: Mapping[str, Any]) -> str:
    """What to do, and why, in at most two sentences."""
    return _SAID[kind](evidence)


def _idle(facts: Mapping[str, Any]) -> str:
    return f"End or shrink {facts['name']}: {_jobs(facts)} used less than 5 % of the GPU time that was measured."


def _late(facts: Mapping[str, Any]) -> str:
    return f"Check {facts['name']} early: {_jobs(facts)} failed after an hour or more."


def _smaller(facts: Mapping[str, Any]) -> str:
    there = f"{_unit(facts, 'to_')} in {facts['to_cluster']}"
    peak, has = _gib(facts["peak_memory_mib"]), _gib(facts["to_memory_mib"])
    active = _percent(facts["sm_active"])
    return (
        f"Run {facts['name']} on {there}: the peak of its memory is {peak} GiB of {_gib(facts['memory_mib'])}, and {has} is enough. "
        f"{active} of the GPU was active."
    )


def _cheaper(facts: Mapping[str, Any]) -> str:
    return (
        f"Run {facts['name']} in {facts['to_cluster']} ({facts['to_flavor']}): the same GPU costs {_plain(facts['to_unit_price'])} "
        f"an hour there, and its constraints allow it."
    )


def _spot(facts: Mapping[str, Any]) -> str:
    rate = "as its price states" if facts["is_rate_stated"] else "the installation's usual rate"
    return (
        f"Allow spot capacity for {facts['name']}: {facts['to_flavor']} in {facts['to_cluster']}. It writes checkpoints every "
        f"{_minutes(facts['checkpoint_seconds'])}, and {_plain(facts['interruptions_per_hour'])} interruptions an hour are "
        f"expected ({rate})."
    )


def _commitment(facts: Mapping[str, Any]) -> str:
    return f"Commit to less than {facts['commitment']}: {_percent(facts['unused_share'])} of it was unused in {facts['days']} days."


def _label(facts: Mapping[str, Any]) -> str:
    return f"Set the label {facts['key']}: {_jobs(facts)} without it, {_percent(facts['share'])} of the cost."


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    Kind.IDLE: _idle,
    Kind.LATE_FAILURES: _late,
    Kind.SMALLER: _smaller,
    Kind.CHEAPER: _cheaper,
    Kind.SPOT: _spot,
    Kind.UNUSED_COMMITMENT: _commitment,
    Kind.MISSING_LABEL: _label,
}


def _jobs(facts: Mapping[str, Any]) -> str:
    number = facts["jobs"]
    return "1 job" if number == 1 else f"{number:,} jobs"


def _unit(facts: Mapping[str, Any], side: str) -> str:
    sharing = facts[f"{side}sharing"]
    kind, _, profile = sharing.partition(":")
    return f"a {profile} slice of {facts[f'{side}gpu_model']}" if kind == "mig" else facts[f"{side}gpu_model"]


def _gib(mib: int) -> str:
    return f"{Decimal(mib) / 1024:.1f}".removesuffix(".0")


def _percent(ratio: str) -> str:
    return f"{Decimal(ratio) * 100:.0f} %"


def _plain(number: str) -> str:
    return f"{Decimal(number).normalize():f}"


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds % 60 else f"{seconds // 60} min"
