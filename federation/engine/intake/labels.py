"""A job's labels, read from untrusted JSON."""

from federation.engine import names

from .reading import Fields, child, text_fault
from .spec import MAX_LABELS, MAX_SECONDS, Rules


def read_labels(fields: Fields, rules: Rules) -> tuple[tuple[str, str], ...]:
    """The labels, sorted by key."""
    values = fields.mapping("labels")
    if len(values) > MAX_LABELS:
        fields.fault("labels", "too_many", f"must have at most {MAX_LABELS} labels")
        return ()
    path = fields.at("labels")
    for key, value in values.items():
        fault = names.label_key_fault(key, allow_simulation=rules.allow_simulation) or text_fault(
            value, names.MAX_LABEL
        )
        if fault is None and not names.label_value(value):
            fault = "bad_format", "up to 63 letters, digits, '-', '_', '.', starting and ending with a letter or digit"
        if fault is None and key in (names.SIMULATED_SECONDS, names.SIMULATED_EXIT_CODE):
            fault = _simulation_fault(key, value)
        if fault is not None:
            fields.faults.add(child(path, key), *fault)
    return tuple(sorted(values.items())) if all(isinstance(value, str) for value in values.values()) else ()


def _simulation_fault(key: str, value: str) -> tuple[str, str] | None:
    most = MAX_SECONDS if key == names.SIMULATED_SECONDS else 255
    if not (value.isascii() and value.isdigit() and int(value) <= most):
        return "out_of_range", f"a whole number from 0 to {most}, as text"
    return None
