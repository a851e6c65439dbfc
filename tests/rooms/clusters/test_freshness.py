"""A cluster that nobody observes any more loses trust by the clock alone, and wins it back by being observed."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.urls import reverse

from clusters.api.shapes import show_cluster
from clusters.engine.health import FRESH, Freshness, freshness, stale_findings
from clusters.locks import lock_cluster
from clusters.models import Cluster
from clusters.operations import record_contact
from clusters.queries.pages import fleet_view
from federation.operations import run_scheduling_cycle
from federation.queries.snapshot import load_fleet
from foundation.clock import now
from placement.cycle.cycle import decide
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit
from tests.engine.fleets import flavor, job, pods, snapshot, uniform
from tests.live import observe_until, simulated_cluster

LONG = timedelta(seconds=181)
AT = now()


@pytest.mark.parametrize(
    ("seen", "observed", "expected"),
    [
        (None, None, FRESH),
        (0, None, FRESH),
        (90, 90, FRESH),
        (91, 0, Freshness(1, is_stale=False)),
        (0, 150, Freshness(2, is_stale=False)),
        (180, 180, Freshness(3, is_stale=False)),
        (0, 181, Freshness(3, is_stale=True)),
        (181, 0, Freshness(3, is_stale=True)),
        (-500, -500, FRESH),
        (10**9, None, Freshness(16_666_666, is_stale=True)),
    ],
)
def test_age_counts_from_the_older_of_contact_and_observation(seen, observed, expected):
    last, newest = (None if age is None else AT - timedelta(seconds=age) for age in (seen, observed))
    assert freshness(AT, last, newest, limit_seconds=180) == expected


def test_only_staleness_is_held_against_a_cluster():
    assert stale_findings(Freshness(2, is_stale=False)) == []
    assert "3 min ago" in stale_findings(Freshness(3, is_stale=True))[0].message


def test_of_equally_good_clusters_the_fresher_is_taken():
    aged, fresh = uniform(1, minutes_unseen=2), uniform(2)
    (placement,) = decide(snapshot([aged, fresh], [job(pods(gpus=8))])).placements
    assert placement.cluster == "c2"
    (placement,) = decide(snapshot([uniform(1), uniform(2, minutes_unseen=2)], [job(pods(gpus=8))])).placements
    assert placement.cluster == "c1"


def test_age_does_not_outweigh_what_a_strategy_wants():
    aged, dear = uniform(1, of=flavor(price="1.99"), minutes_unseen=10**6), uniform(2, of=flavor(price="2.00"))
    (placement,) = decide(snapshot([aged, dear], [job(pods(gpus=8), strategy="cheapest")])).placements
    assert placement.cluster == "c1"


def test_a_stale_cluster_takes_nothing_and_says_how_old_it_is():
    (wait,) = decide(snapshot([uniform(1, state="stale", minutes_unseen=7)], [job()])).waits
    assert (wait.code, wait.per_cluster[0].code) == ("clusters_unreachable", "stale")
    assert wait.per_cluster[0].message.startswith("it was last observed 7 min ago")


@pytest.fixture
def cluster(db):
    found = make_cluster(name="east", last_seen_at=now(), observed_at=now(), inventory_version=1)
    make_flavor(found)
    make_node(found)
    return found


def age(cluster, **instants):
    Cluster.objects.filter(id=cluster.id).update(**instants)


def test_the_cycle_passes_a_stale_cluster_by_until_it_is_observed_again(cluster):
    user = make_user()
    bind(user, "acme")
    queued = submit(actor_for(user), {"tenant": "acme", **make_spec(pod={"gpu": {"count": 1}})})
    age(cluster, observed_at=now() - LONG)
    run_scheduling_cycle()
    queued.refresh_from_db()
    assert (queued.state, queued.explanation["clusters"][0]["code"]) == ("queued", "stale")
    record_contact(cluster.id, observed_seconds_ago=0)
    run_scheduling_cycle()
    queued.refresh_from_db()
    assert queued.state == "dispatching"


def test_arrays_are_kept_while_a_cluster_is_fresh_and_not_beyond(cluster):
    (first,) = load_fleet(now())
    (same,) = load_fleet(now() + timedelta(seconds=80))
    (aged,) = load_fleet(now() + timedelta(seconds=130))
    (stale,) = load_fleet(now() + LONG)
    assert same is first
    assert (aged.state, aged.minutes_unseen) == ("ready", 2)
    assert (stale.state, stale.minutes_unseen) == ("stale", 3)
    age(cluster, wish="cordoned")
    assert load_fleet(now() + LONG)[0].state == "cordoned"


def test_pages_show_it_first_with_its_age(cluster):
    make_cluster(name="alpha", last_seen_at=now())
    user = make_user()
    bind(user, "acme")
    age(cluster, last_seen_at=now() - timedelta(hours=1))
    view = fleet_view(actor_for(user))
    first = view.clusters[0]
    assert (first.name, first.minutes_stale, view.ready) == ("east", 60, 1)
    assert [reason.code for reason in first.reasons] == ["stale"]


def test_api_and_pages_tell_staleness_and_its_end(cluster, client):
    user = make_user()
    bind(user, "acme")
    client.force_login(user)
    age(cluster, observed_at=now() - LONG)
    cluster.refresh_from_db()
    shown = show_cluster(cluster)
    assert (shown["is_stale"], shown["state"], [one["code"] for one in shown["reasons"]]) == (True, "ready", ["stale"])
    for page in (reverse("fleet"), reverse("cluster", args=[cluster.id])):
        text = client.get(page).content.decode()
        assert "stale, 3 min" in text
        assert "Last observed 3 min ago" in text
    record_contact(cluster.id, observed_seconds_ago=0)
    cluster.refresh_from_db()
    shown = show_cluster(cluster)
    assert (shown["is_stale"], shown["reasons"]) == (False, [])
    assert "stale," not in client.get(reverse("fleet")).content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_observer_says_when_the_watches_last_lived():
    began = now()
    cluster = simulated_cluster()
    observe_until(lambda: Cluster.objects.filter(id=cluster.id, observed_at__gte=began).exists())


@pytest.mark.django_db(transaction=True)
def test_a_contact_that_waits_for_the_clusters_row_says_nothing_of_the_time_it_waited():
    """Otherwise running time would be metered beyond an end that is reported during the wait."""
    cluster, is_locked = make_cluster(name="east"), threading.Event()

    def hold():
        try:
            with transaction.atomic():
                lock_cluster(cluster.id)
                is_locked.set()
                time.sleep(0.5)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_locked.wait(10)
    asked_at = now()
    record_contact(cluster.id, clock_skew_ms=0, observed_seconds_ago=0)
    holder.join()
    cluster.refresh_from_db()
    assert cluster.observed_at <= asked_at + timedelta(seconds=0.2) < cluster.last_seen_at
