"""Controls of the submit form that are made from the table of job fields."""

import pytest

from federation.engine.intake.job_fields import JOB_FIELDS, Choice, Control, JobField, Section, Whole
from federation.web.field_controls import CONTROLS, control_of, fields_of

BY_NAME = {control.name: control for control in CONTROLS}


def test_each_field_with_a_control_is_in_one_section():
    assert sorted(control.field.name for control in CONTROLS) == sorted(
        field.name for field in JOB_FIELDS if field.control
    )


@pytest.mark.parametrize(
    ("typed", "value"), [("2", 120), (" 2 ", 120), ("0", 0), ("", None), (" ", None), ("1.5", "1.5")]
)
def test_seconds_are_entered_as_minutes(typed, value):
    assert BY_NAME["deadline_minutes"].value_of(typed) == value


def test_a_whole_number_without_a_unit_is_entered_as_it_is():
    control = control_of(JobField("completions", Whole(1, 10), control=Control(Section.TIME, "Pods")))
    assert (control.name, control.kind, control.value_of("7")) == ("completions", "text", 7)


def test_a_choice_without_a_default_may_stay_unset():
    """`completions` has no default in a spec."""
    control = control_of(JobField("completions", Choice(("some", "all")), control=Control(Section.TIME, "Pods")))
    assert control.options == (("", "not set"), ("some", "some"), ("all", "all"))
    assert (control.value_of(""), control.value_of("all")) == (None, "all")


def test_an_empty_form_sends_only_its_choices():
    assert fields_of({}) == {"strategy": "balanced", "moves": "never"}
