"""`switchyard prices`: the file goes there and back, a plan is shown, and only what was planned is applied."""

import json
from datetime import datetime, timedelta

import httpx
import pytest
from django.core.handlers.wsgi import WSGIHandler

from foundation.clock import database_now
from foundation.plain_json import instant
from switchyard import Client, Problem
from switchyard.cli.session import REFUSED
from tests.builders import make_cluster, make_flavor, make_token

pytestmark = pytest.mark.django_db(transaction=True)
ONE = "  - {{cluster: north, flavor: h100, capacity_type: on_demand, from: '{start}', currency: USD, unit_price: {amount}}}\n"
HEAD = "apiVersion: switchyard/v1\nkind: PriceBook\nprices:\n"


@pytest.fixture
def client(user):
    """With a token that may do what its user may."""
    with Client("http://localhost", make_token(user, "admin"), transport=httpx.WSGITransport(WSGIHandler())) as made:
        yield made


@pytest.fixture
def text(user):
    make_flavor(make_cluster("acme", name="north"), "h100")
    start: datetime = database_now() + timedelta(days=1)
    return HEAD + ONE.format(start=instant(start), amount=3)


def test_prices_are_planned_applied_and_exported(run, text, tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    planned = run("prices", "plan", str(file))
    assert planned.status == 0
    assert "north h100 on_demand" in planned.out
    digest = planned.err.split()[-1]
    with pytest.raises(Problem) as other:
        run("prices", "apply", str(file), "--expect", "0" * 64)
    assert other.value.code == "prices_changed"
    assert run("prices", "apply", "-", "--expect", digest, given=text).status == 0
    exported = run("prices", "export", "--cluster", "north").out
    assert "unit_price: '3'" in exported
    nothing = run("-o", "json", "prices", "plan", "-", "--prune", given=exported)
    assert json.loads(nothing.out)["changes"] == []


def test_refusals_say_where(run, text):
    refused = run("prices", "plan", "-", given=text.replace("h100", "none"))
    assert refused.status == REFUSED
    assert "line 4, column 5: unknown_flavor" in refused.out
    with pytest.raises(Problem) as wrong:
        run("prices", "plan", "-", given=text.replace(": 3}", ": -3}"))
    assert "line 4, column" in str(wrong.value)
    assert run("prices", "apply", "/there/is/none").status == 2
