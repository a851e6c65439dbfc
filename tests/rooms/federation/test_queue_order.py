"""SWITCHYARD_QUEUE_ORDER: who of one priority is next."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment
from federation.queries.queue import QUEUE_DEPTH, load_queue
from foundation import clock
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def jobs():
    """A long job, a short one that came after it, and an urgent one that came last."""
    user = make_user()
    bind(user, "acme")
    cluster = make_cluster()
    make_flavor(cluster)
    make_node(cluster)
    asked: tuple[dict[str, Any], ...] = (
        {"estimated_seconds": 36_000},
        {"estimated_seconds": 600},
        {"priority_class": "high"},
    )
    return [
        submit(actor_for(user), {**make_spec(name=f"j{n}", **more), "tenant": "acme"}).id
        for n, more in enumerate(asked)
    ]


@pytest.mark.parametrize(("order", "expected"), [("submitted", [2, 0, 1]), ("ratio", [2, 1, 0])])
def test_the_cycle_considers_jobs_in_the_order_that_was_asked_for(settings, jobs, order, expected):
    settings.QUEUE_ORDER = order
    queue = load_queue(clock.now(), QUEUE_DEPTH)
    assert [jobs.index(request.id) for request in queue] == expected


def test_an_order_that_does_not_exist_stops_the_boot(monkeypatch):
    monkeypatch.setenv("SWITCHYARD_QUEUE_ORDER", "luck")
    with pytest.raises(ImproperlyConfigured, match="must be one of submitted, ratio; it is 'luck'"):
        environment.choice("SWITCHYARD_QUEUE_ORDER", "submitted", ("submitted", "ratio"))
