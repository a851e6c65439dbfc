"""Untrusted YAML: plain values with their places, and nothing else."""

import pytest

from federation.engine.intake.reading import Refused
from foundation.plain_yaml import MOST_CHARACTERS, MOST_DEPTH, Mark, read_documents


def values(text):
    return [document.value for document in read_documents(text)]


def test_only_plain_words_and_whole_numbers_are_more_than_text():
    plain = "[true, True, false, False, null, Null, ~, -12, 0, 007, 1.50, 1e3, yes, '5', \"true\"]"
    assert values(plain) == [
        [True, True, False, False, None, None, None, -12, 0, "007", "1.50", "1e3", "yes", "5", "true"]
    ]
    assert values("a:\n") == [{"a": None}]
    assert values("a: |\n  12\n---\nb: 123456789012345678\nc: 1234567890123456789\n") == [
        {"a": "12\n"},
        {"b": 123456789012345678, "c": "1234567890123456789"},
    ]


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("a: &x 1\nb: *x\n", "yaml_alias", "line 1, column 4"),
        ("a: 1\n? &k b\n: 2\n", "yaml_alias", "line 2, column 3"),
        ("a: !!str 1\n", "yaml_tag", "line 1, column 4"),
        ("a: 1\na: 2\n", "given_twice", "line 2, column 1"),
        ("a: 1\n<<: {b: 1}\n", "yaml_alias", "line 2, column 1"),
        ("? [a]\n: 1\n", "bad_yaml", "line 1, column 3"),
        ("a: 1\nb: }\n", "bad_yaml", "line 2, column 4"),
        ("a: 1\nb: \x01\n", "bad_yaml", "line 2, column 4"),
        ("[" * (MOST_DEPTH + 2), "too_deep_or_large", f"line 1, column {MOST_DEPTH + 2}"),
        ("a" * (MOST_CHARACTERS + 1), "too_long", ""),
    ],
)
def test_what_is_not_plain_yaml_is_refused_at_its_place(text, code, where):
    with pytest.raises(Refused) as refused:
        read_documents(text)
    [fault] = refused.value.faults
    assert fault.code == code
    assert fault.detail.startswith(f"{where}: " if where else "a file has at most")


def test_as_many_documents_levels_and_values_as_a_file_may_have():
    deepest = "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1)
    assert values(deepest)
    assert len(read_documents("--- 1\n" * 3, most=3)) == 3
    with pytest.raises(Refused, match=r"line 3, column 1: a file has at most 2 documents"):
        read_documents("--- 1\n" * 3, most=2)


def test_a_missing_field_has_the_place_of_what_is_around_it():
    [document] = read_documents("a:\n  - b: 1\n    c: 2\n")
    places = {"a[0].c": Mark(3, 5), "a[0].d.e": Mark(2, 5), "a[7].b": Mark(1, 1), "z": Mark(1, 1), "": Mark(1, 1)}
    assert {path: document.mark(path) for path in places} == places
    [later] = read_documents("\n\n   a: 1\n")
    assert later.mark("z") == Mark(3, 4)
