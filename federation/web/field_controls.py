"""The submit form's controls for the job fields that have one in the table of job fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from federation.engine.intake.job_fields import JOB_FIELDS, Choice, JobField, Part, Section, Text, Whole

from .jobs import Options
from .typing_in import whole_number

SECONDS, MINUTES = "_seconds", "_minutes"


@dataclass(frozen=True, slots=True)
class FieldControl:
    """The control of a field, as `components/field.html` renders it. Users enter seconds as minutes."""

    field: JobField
    name: str
    label: str
    hint: str
    kind: str = "text"
    options: Options = ()

    def value_of(self, text: str) -> Any:
        """The field's value; None if the control is empty. Invalid numbers remain text, so that the spec's reader
        reports them.
        """
        text = text.strip()
        if isinstance(self.field.kind, Choice):
            return text or self.field.default
        if not text or not isinstance(self.field.kind, Whole):
            return text or None
        number = whole_number(text)
        return number * 60 if isinstance(number, int) and self.name.endswith(MINUTES) else number


def control_of(field: JobField) -> FieldControl:
    """The control of a field that has one."""
    control = field.control
    assert control is not None
    match field.kind:
        case Choice(options):
            unset = () if field.default else (("", "not set"),)
            named = (*unset, *((name, name) for name in options))
            return FieldControl(field, field.name, control.label, control.hint, "select", named)
        case Whole() if field.name.endswith(SECONDS):
            return FieldControl(field, field.name.removesuffix(SECONDS) + MINUTES, control.label, control.hint)
        case Whole() | Text():
            return FieldControl(field, field.name, control.label, control.hint)
        case Part():
            raise LookupError(f"{field.name} is structured: write its control by hand")


SECTIONS: Mapping[Section, tuple[FieldControl, ...]] = {
    section: tuple(control_of(field) for field in JOB_FIELDS if field.control and field.control.section == section)
    for section in Section
}
CONTROLS = tuple(control for controls in SECTIONS.values() for control in controls)
CONTROL_NAMES = {control.field.name: control.name for control in CONTROLS}
"""The control of each field, for the errors of a refusal."""
CHOSEN_AT_FIRST = {control.name: control.field.default or "" for control in CONTROLS if control.options}
"""The options that the empty form has chosen."""


def fields_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The fields that are set in the form's values."""
    found = {control.field.name: control.value_of(values.get(control.name, "")) for control in CONTROLS}
    return {name: value for name, value in found.items() if value is not None}
