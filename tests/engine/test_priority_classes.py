"""Which priority classes a user may name at a tenant, and how a class is read."""

from uuid import UUID

import pytest

from federation.engine.intake.priority_classes import ClassesHere, ClassHere, WantedGrant, class_json, read_class
from federation.engine.intake.reading import Refused

OPEN = ClassHere(UUID(int=1), "normal", 0, is_default=True, is_open=True)
MANAGERS = ClassHere(UUID(int=2), "urgent", 500, is_default=False, is_open=False, roles=("manager",))
HERE = ClassHere(UUID(int=3), "research", 50, is_default=False, is_open=False, roles=("",))
ELSEWHERE = ClassHere(UUID(int=4), "hidden", 900, is_default=False, is_open=False)
ALL = (ELSEWHERE, MANAGERS, HERE, OPEN)
WHOLE = {
    "name": "urgent", "value": 500, "description": "Deadlines.", "is_open": False, "is_default": True,
    "preempts": "lower", "shield_seconds": 0, "most_running": 4, "most_gpus": "0.5", "grants": [{"role": "manager", "tenant": None}, {"role": None, "tenant": "acme/ops"}],
}  # fmt: skip


def here(*held, **more):
    return ClassesHere("acme", ALL, held, **more)


@pytest.mark.parametrize(
    ("held", "usable"),
    [
        ((), ["research", "normal"]),
        (("submitter",), ["research", "normal"]),
        (("manager",), ["urgent", "research", "normal"]),
        (("submitter", "manager"), ["urgent", "research", "normal"]),
        (("admin",), ["urgent", "research", "normal"]),
        (("finance", "submitter"), ["research", "normal"]),
    ],
)
def test_a_grant_to_a_role_counts_for_roles_that_include_it(held, usable):
    assert [one.name for one in here(*held).usable] == usable


def test_operators_may_use_every_class():
    assert here(is_operator=True).usable == ALL
    assert here(is_operator=True).fault("hidden") is None


def test_a_refusal_names_what_may_be_used_and_hides_what_reaches_no_user_of_the_tenant():
    assert here("submitter").fault("urgent") == (
        "not_allowed",
        "you may not use the priority class urgent; in acme you may use research, normal",
    )
    hidden, unknown = here("submitter").fault("hidden"), here("submitter").fault("no-such")
    assert hidden == unknown
    assert unknown == ("unknown_value", "there is no such priority class; in acme you may use research, normal")
    closed = ClassesHere("acme", (ELSEWHERE, MANAGERS), ("submitter",))
    assert closed.fault("urgent") == (
        "not_allowed",
        "you may not use the priority class urgent; you may use none",
    )
    assert here("submitter").fault("normal") is None


def test_the_nearest_policys_default_goes_before_that_of_the_installation_and_is_checked_too():
    assert here().default_name == "normal"
    assert ClassesHere("acme", (MANAGERS, HERE)).default_name == ""
    chosen = here("submitter", inherited="urgent")
    assert chosen.default_name == "urgent"
    assert chosen.fault("urgent")[0] == "not_allowed"
    # the default of a policy above the place that its class was granted at
    assert here("submitter", inherited="hidden").fault("hidden")[0] == "not_allowed"


def test_a_class_is_read_as_it_is_written():
    wanted = read_class(WHOLE)
    assert wanted.grants == (WantedGrant("manager", ""), WantedGrant("", "acme/ops"))
    assert class_json(wanted, is_default=True) == WHOLE
    least = read_class({"name": "batch", "value": -7})
    assert (least.is_open, least.is_default, least.grants, least.description) == (False, None, (), "")
    assert (least.preempts, least.shield_seconds) == ("never", 300)


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"name": None}, "name", "required"),
        ({"name": "Urgent"}, "name", "bad_format"),
        ({"name": "a" * 64}, "name", "too_long"),
        ({"value": None}, "value", "required"),
        ({"preempts": "higher"}, "preempts", "unknown_value"),
        ({"preempts": True}, "preempts", "unknown_value"),
        ({"shield_seconds": -1}, "shield_seconds", "out_of_range"),
        ({"shield_seconds": 2_592_001}, "shield_seconds", "out_of_range"),
        ({"shield_seconds": 1.5}, "shield_seconds", "wrong_type"),
        ({"value": "500"}, "value", "wrong_type"),
        ({"value": True}, "value", "wrong_type"),
        ({"value": 1_000_001}, "value", "out_of_range"),
        ({"value": -1_000_001}, "value", "out_of_range"),
        ({"description": "a" * 501}, "description", "too_long"),
        ({"description": "\x00"}, "description", "bad_characters"),
        ({"is_open": "yes"}, "is_open", "wrong_type"),
        ({"is_open": True}, "grants", "not_allowed"),
        ({"is_default": 1}, "is_default", "wrong_type"),
        ({"grants": {}}, "grants", "wrong_type"),
        ({"grants": ["manager"]}, "grants[0]", "wrong_type"),
        ({"grants": [{}]}, "grants[0].role", "required"),
        ({"grants": [{"role": "root"}]}, "grants[0].role", "unknown_value"),
        ({"grants": [{"tenant": 7}]}, "grants[0].tenant", "wrong_type"),
        ({"grants": [{"role": "admin", "user": "ada"}]}, "grants[0].user", "unknown_field"),
        ({"grants": [{"role": "admin"}] * 101}, "grants", "too_many"),
        ({"users": []}, "users", "unknown_field"),
    ],
)
def test_a_class_at_fault_is_refused_with_the_field(change, field, code):
    with pytest.raises(Refused) as refused:
        read_class(WHOLE | change)
    assert (field, code) in [(fault.field, fault.code) for fault in refused.value.faults]
