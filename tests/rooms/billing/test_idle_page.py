"""The page of idle capacity shows the report, to each user what they may see."""

import pytest

from tests.builders import bind, make_user

from .ledgers import priced_cluster
from .test_idle import close, offered, policy, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def visit(client):
    def visited(path="acme", role="finance", query="?month=2026-10"):
        user = make_user()
        bind(user, path, role)
        client.force_login(user)
        return client.get(f"/idle/{query}")

    return visited


@pytest.fixture
def north():
    cluster = priced_cluster()
    offered(cluster)
    return cluster


def test_the_bridge_the_heat_map_and_the_shares_are_shown(north, visit):
    policy()
    used(north, one=4, two=2)
    text = visit().content.decode()
    assert "This month is not closed, so its figures may change." in text
    assert '<td class="num heat-4" title="45.00 of 60.00 USD">75</td>' in text
    assert text.count('class="num heat-5"') == 30
    for words in ("Idle, borne by tenants", "45.00", "1,800.00", "1,860.00", "format=csv"):
        assert words in text
    assert close()
    assert "closed with these numbers" in visit().content.decode()


def test_a_team_sees_its_own_shares_only(north, visit):
    used(north, one=4, two=2)
    text = visit("acme/one", "viewer").content.decode()
    assert "10.00 USD" in text
    assert "heat-5" not in text
    assert "acme/two" not in text


def test_an_empty_month_and_a_wrong_question(north, visit):
    assert "No charges in this month" in visit(query="").content.decode()
    assert visit(query="?month=2199-01").status_code == 200
    assert visit(query="?organisation=other").status_code == 404
    assert visit(query="?month=x").status_code == 422
