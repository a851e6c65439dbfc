"""The documented codes are the codes there are, and each says what it means."""

import re

from placement.values.reason_codes import ReasonCode
from tests.house.source import ROOT

PAGE = ROOT / "docs/reference/reasons.md"


def documented():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {code for row in rows for code in re.findall(r"`(\w+)`", row)}


def test_every_reason_code_is_documented_and_no_other():
    assert documented() == {code.value for code in ReasonCode}


def test_every_reason_code_says_what_it_means():
    assert all(code.meaning.endswith(".") for code in ReasonCode)
