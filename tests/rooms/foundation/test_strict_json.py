import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.strict_json import MalformedJSON, loads

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_was_written_is_read_back(value):
    assert loads(json.dumps(value).encode()) == value
    assert loads(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_nothing_else(noise):
    with contextlib.suppress(MalformedJSON):
        loads(noise)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not valid"),
        (b"{", "line 1 column"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"ü": 1}'.encode("latin-1"), "not UTF-8"),
        ("{}".encode("utf-16"), "not UTF-8"),
        ("{}".encode("utf-16-le"), "not valid"),
        (b"+AHs-+AH0-", "not valid"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": {"b": 1, "b": 1}}', "twice"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b"1e400", "too large"),
        (b"-1e400", "too large"),
        (b"9" * 5000, "too long"),
        (b"0." + b"1" * 5000, "too long"),
        (b"[" * 33 + b"]" * 33, "nested deeper"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested deeper"),
        (b"[" * 1_000_000, "nested deeper"),
        (rb'"\ud800"', "half a surrogate"),
        (rb'{"\udfff": 1}', "half a surrogate"),
        (rb'["\u0000"]', "NUL"),
        (b'"\x00"', "not valid"),
        (b'"a\nb"', "not valid"),
        (b"{'a': 1}", "not valid"),
        (b"[1,]", "not valid"),
        (b"01", "not valid"),
        (b"// hi\n{}", "not valid"),
        (b"{} {}", "not valid"),
    ],
)
def test_text_that_is_not_plain_json_is_refused(text, said):
    with pytest.raises(MalformedJSON, match=said):
        loads(text)


def test_thirty_two_levels_and_brackets_in_strings_are_fine():
    assert loads(b"[" * 32 + b"]" * 32)
    assert loads(json.dumps(["[" * 100, '{"' * 100, "\\"]).encode())
    assert loads(rb'"\ud83d\ude00"') == "😀"


def test_a_large_body_is_read_in_linear_time():
    body = json.dumps(
        [{"name": f"job-{n}", "pods": [{"cpu": "1", "labels": {"a": "b"}}]} for n in range(10_000)]
    ).encode()
    began = time.process_time()
    assert len(loads(body)) == 10_000
    assert time.process_time() - began < 2
