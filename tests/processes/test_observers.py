"""Observers as real processes: they share the clusters, outlive each other, and end well whenever they are told to."""

import signal
from collections import Counter

import pytest
from django.db import connection

from clusters.operations import register_simulated
from tests.builders import make_tenant

from .test_turns import running, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
OBSERVER = ("manage.py", "observer")


def shares():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT holder, count(*) FROM foundation_lease"
            " WHERE starts_with(name, 'observe:') AND expires_at > clock_timestamp() GROUP BY holder"
        )
        return sorted(Counter(dict(cursor.fetchall())).values())


def test_two_observers_share_the_clusters_and_one_takes_over_what_a_killed_one_held(home):
    for number in range(20):
        register_simulated(make_tenant("acme"), f"member-{number}")
    with running(home, *OBSERVER) as one, running(home, *OBSERVER):
        wait_for(lambda: shares() == [10, 10], "each has its half")
        one.send_signal(signal.SIGKILL)
        wait_for(lambda: shares() == [20], "the other one follows them all", 60)


def test_an_observer_ends_well_on_sigterm_at_any_moment(home):
    for number in range(20):
        register_simulated(make_tenant("acme"), f"member-{number}")
    for _ in range(4):
        with running(home, *OBSERVER) as observer:
            wait_for(shares, "it has taken some clusters")
            observer.terminate()
            assert observer.wait(20) == 0
            assert shares() == [], "everything was given back"
    assert "Traceback" not in (home / "output.log").read_text()
