"""How a field of a request is read: each reader at its bounds, what it returns, and the fault that it tells."""

from datetime import UTC, datetime

import pytest

from federation.engine.intake.reading import Faults, Fields, Refused, text_fault


def read(how, value, path="", **others):
    """What a reader returns of the field `a`, and the faults by field and code."""
    faults = Faults()
    fields = Fields({"a": value, **others}, path, faults, frozenset({"a", *others}))
    found = how(fields)
    return found, [(one.field, one.code) for one in faults.found]


def refused(code, value):
    return value, [("a", code)]


def fine(value):
    return value, []


@pytest.mark.parametrize(
    ("how", "value", "expected"),
    [
        (lambda f: f.text("a"), "x" * 1024, fine("x" * 1024)),
        (lambda f: f.text("a"), "x" * 1025, refused("too_long", "")),
        (lambda f: f.text("a"), None, refused("required", "")),
        (lambda f: f.text("a", default=""), None, fine("")),
        (lambda f: f.text("a", default="d"), None, fine("d")),
        (lambda f: f.text("a", default="d"), 1, refused("wrong_type", "d")),
        (lambda f: f.text("a", most_bytes=2), "ab", fine("ab")),
        (lambda f: f.text("a", most_bytes=2), "ä", fine("ä")),
        (lambda f: f.text("a", most_bytes=2), "äb", refused("too_long", "")),
        (lambda f: f.text("a"), "a\0", refused("bad_characters", "")),
        (lambda f: f.text("a"), "ä\0", refused("bad_characters", "")),
        (lambda f: f.text("a"), "\ud800", refused("bad_characters", "")),
        (lambda f: f.text("a"), "", fine("")),
        (lambda f: f.quantity("a"), 4, fine("4")),
        (lambda f: f.quantity("a"), 0.5, fine("0.5")),
        (lambda f: f.quantity("a"), 1e-7, fine("0.0000001")),
        (lambda f: f.quantity("a"), "500m", fine("500m")),
        (lambda f: f.quantity("a"), True, refused("wrong_type", "")),
        (lambda f: f.quantity("a"), float("inf"), refused("wrong_type", "")),
        (lambda f: f.quantity("a"), None, refused("required", "")),
        (lambda f: f.quantity("a"), 10**31, fine("1" + "0" * 31)),
        (lambda f: f.quantity("a"), 10**32, refused("too_long", "")),
        (lambda f: f.quantity("a"), "1" * 32, fine("1" * 32)),
        (lambda f: f.quantity("a"), "1" * 33, refused("too_long", "")),
        (lambda f: f.quantity("a", most_bytes=2), 100, refused("too_long", "")),
        (lambda f: f.checked("a", str.islower, "why"), "abc", fine("abc")),
        (lambda f: f.checked("a", str.islower, "why"), "ABC", refused("bad_format", "ABC")),
        (lambda f: f.checked("a", str.islower, "why"), None, refused("required", "")),
        (lambda f: f.checked("a", str.islower, "why"), "a" * 1024, fine("a" * 1024)),
        (lambda f: f.checked("a", str.islower, "why"), "a" * 1025, refused("too_long", "")),
        (lambda f: f.checked("a", str.islower, "why", most_bytes=1), "ab", refused("too_long", "")),
        (lambda f: f.choice("a", ["x", "y"], "x"), "y", fine("y")),
        (lambda f: f.choice("a", ["x", "y"], "x"), None, fine("x")),
        (lambda f: f.choice("a", ["x", "y"], "x"), "z", refused("unknown_value", "x")),
        (lambda f: f.choice("a", ["x", "y"], "x"), ["y"], refused("unknown_value", "x")),
        (lambda f: f.whole("a", 1, 9), 1, fine(1)),
        (lambda f: f.whole("a", 1, 9), 9, fine(9)),
        (lambda f: f.whole("a", 1, 9), 0, refused("out_of_range", 1)),
        (lambda f: f.whole("a", 1, 9), 10, refused("out_of_range", 1)),
        (lambda f: f.whole("a", 1, 9), 2.0, refused("wrong_type", 1)),
        (lambda f: f.whole("a", 0, 9), False, refused("wrong_type", 0)),
        (lambda f: f.whole("a", 1, 9), None, fine(None)),
        (lambda f: f.whole("a", 1, 9, 5), None, fine(5)),
        (lambda f: f.whole("a", 1, 9, required=True), None, refused("required", 1)),
        (lambda f: f.flag("a", default=True), None, fine(True)),
        (lambda f: f.flag("a", default=True), False, fine(False)),
        (lambda f: f.flag("a", default=False), True, fine(True)),
        (lambda f: f.flag("a", default=False), 1, refused("wrong_type", False)),
        (lambda f: f.instant("a"), None, fine(None)),
        (lambda f: f.instant("a", required=True), None, refused("required", None)),
        (lambda f: f.instant("a"), "2026-01-31T12:00:00Z", fine(datetime(2026, 1, 31, 12, tzinfo=UTC))),
        (lambda f: f.instant("a"), "2026-01-31T12:00:00+02:00", fine(datetime(2026, 1, 31, 10, tzinfo=UTC))),
        (lambda f: f.instant("a"), "2026-01-31T12:00:00", refused("bad_format", None)),
        (lambda f: f.instant("a"), "2026-02-30T12:00:00Z", refused("bad_format", None)),
        (lambda f: f.instant("a"), "0001-01-01T00:00:00+23:00", refused("bad_format", None)),
        (lambda f: f.instant("a"), "", refused("bad_format", None)),
        (lambda f: f.instant("a"), 7, refused("wrong_type", None)),
        (lambda f: f.instant("a"), "2" * 41, refused("too_long", None)),
        (lambda f: f.array("a", most=2), None, fine([])),
        (lambda f: f.array("a", most=2), [1, 2], fine([1, 2])),
        (lambda f: f.array("a", most=2), [1, 2, 3], refused("too_many", [])),
        (lambda f: f.array("a", most=2), "ab", refused("wrong_type", [])),
        (lambda f: f.array("a", most=3, least=2), [], refused("required", [])),
        (lambda f: f.array("a", most=3, least=2), [1], refused("too_few", [])),
        (lambda f: f.array("a", most=3, least=2), [1, 2], fine([1, 2])),
        (lambda f: f.texts("a", most=2), ["x" * 1024, "y"], fine(("x" * 1024, "y"))),
        (lambda f: f.texts("a", most=2), ["y", "x" * 1025], ((), [("a[1]", "too_long")])),
        (lambda f: f.texts("a", most=2), [1, 2], ((), [("a[0]", "wrong_type")])),
        (lambda f: f.names("a", str.islower, "why"), ["b", "a", "b"], fine(("a", "b"))),
        (lambda f: f.names("a", str.islower, "why"), ["B", "a", "C"],
         (("B", "C", "a"), [("a[0]", "bad_format"), ("a[2]", "bad_format")])),
        (lambda f: f.names("a", str.islower, "why"), ["a" * 253], fine(("a" * 253,))),
        (lambda f: f.names("a", str.islower, "why"), ["a" * 254], ((), [("a[0]", "too_long")])),
        (lambda f: len(f.names("a", str.islower, "why")), ["a"] * 100, fine(1)),
        (lambda f: f.names("a", str.islower, "why"), ["a"] * 101, refused("too_many", ())),
        (lambda f: f.mapping("a"), None, fine({})),
        (lambda f: f.mapping("a"), {"b": 1}, fine({"b": 1})),
        (lambda f: f.mapping("a"), [], refused("wrong_type", {})),
    ],
)  # fmt: skip
def test_a_field_is_read_within_its_bounds_or_told(how, value, expected):
    assert read(how, value) == expected


def test_faults_have_the_path_of_their_field():
    found, faults = read(lambda f: (f.whole("a", 1, 9), f.at("b")), "x", "pods[0]")
    assert (found, faults) == ((1, "pods[0].b"), [("pods[0].a", "wrong_type")])


def test_of_what_is_no_object_no_field_is_missed():
    faults = Faults()
    fields = Fields([], "pods[1]", faults, frozenset({"a"}))
    assert (fields.text("a"), fields.values) == ("", {})
    assert [(one.field, one.code) for one in faults.found] == [("pods[1]", "wrong_type")]


def test_every_field_that_is_not_known_is_told_and_why_if_there_is_a_reason():
    faults = Faults()
    Fields({"a": 1, "b": 2, "c": 3}, "", faults, frozenset({"a"}), {"c": "because"})
    assert [(one.field, one.code, one.detail) for one in faults.found] == [
        ("b", "unknown_field", "there is no such field"), ("c", "not_allowed", "because"),
    ]  # fmt: skip
    with pytest.raises(Refused):
        faults.refuse_if_any()


@pytest.mark.parametrize(
    ("value", "most", "code"), [("", 0, None), ("a", 1, None), ("ab", 1, "too_long"), (b"a", 9, "wrong_type")]
)
def test_a_text_has_at_most_so_many_bytes(value, most, code):
    found = text_fault(value, most)
    assert (found and found[0]) == code
