"""Own costs for tests: the example of the document, a model without costs, and any model."""

import json
from decimal import Decimal
from pathlib import Path

from hypothesis import strategies as st

from billing.engine.own_costs import INPUTS, OPTIONAL

DOCUMENT = (Path(__file__).resolve().parents[1] / "docs/reference/own-costs.md").read_text(encoding="utf-8")
EXAMPLE = json.loads(DOCUMENT.partition("```json")[2].partition("```")[0])["model"]
TEXTS = {name: str(value) for name, value in EXAMPLE.items() if name != "currency"}
FREE = dict.fromkeys(INPUTS, "0") | {
    "life_months": "1", "nodes": "1", "units_per_node": "1", "pue": "1", "utilisation_percent": "100", "support_percent": None,
}  # fmt: skip


def text_of(name):
    bounds = INPUTS[name]
    if bounds.whole:
        return st.integers(int(bounds.least), int(bounds.most)).map(str)
    least, most = (int(bound * 10**6) for bound in (bounds.least, bounds.most))
    return st.integers(least, most).map(lambda number: f"{Decimal(number).scaleb(-6):f}")


ANY = {name: text_of(name) for name in INPUTS}
MODELS = st.fixed_dictionaries({name: text for name, text in ANY.items() if name not in OPTIONAL})
SUPPORT = st.one_of(*(st.fixed_dictionaries({name: ANY[name]}) for name in OPTIONAL))
