"""A cycle asks only about features that are in use, and decides as if it had asked about all."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.models import Job
from federation.operations import run_scheduling_cycle
from federation.queries.in_use import InUse, features_in_use
from federation.queries.queue import QUEUE_DEPTH
from federation.queries.snapshot import load_snapshot
from foundation.clock import database_now
from placement.cycle import cycle
from quotas.operations import put_user_limit
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)

pytestmark = pytest.mark.django_db
NOTHING = InUse._make([False] * len(InUse._fields))


@pytest.fixture
def submitters():
    """Submitters of two teams, which share a cluster of one node."""
    cluster = make_cluster("acme", "east")
    make_flavor(cluster)
    make_node(cluster)
    users = {}
    for team in ("acme/red", "acme/blue"):
        make_tenant(team)
        users[team] = make_user(f"{team.rpartition('/')[2]}@example.org")
        bind(users[team], team, "submitter")
    return {team: actor_for(user) for team, user in users.items()}


def waits(submitters, *teams):
    for number, team in enumerate(teams):
        submit(submitters[team], {**make_spec(name=f"job-{number}"), "tenant": team})


def decisions(snapshot):
    made, _ = cycle.run(snapshot)
    return made


def test_a_new_installation_uses_none(submitters):
    assert features_in_use() == NOTHING


@pytest.mark.parametrize("teams", [("acme/red",) * 3, ("acme/red", "acme/blue", "acme/red")])
def test_a_cycle_decides_the_same_with_less(submitters, teams):
    make_limit("acme", nominal="1")
    waits(submitters, *teams)
    now = database_now()

    whole, part = load_snapshot(now, QUEUE_DEPTH), load_snapshot(now, QUEUE_DEPTH, features_in_use())

    assert decisions(part) == decisions(whole)
    assert (part.fair_share is None) == (len(set(teams)) == 1)


def test_a_feature_is_in_use_once_it_has_a_row(submitters):
    make_limit("acme")
    put_user_limit(SYSTEM, "acme", "gpu", most=1000)

    found = features_in_use()

    assert found.limits
    assert found.user_limits
    assert not found.lowered_limits


def test_a_limit_that_appears_while_a_cycle_decides_still_holds(submitters, monkeypatch):
    waits(submitters, "acme/red")
    decide = cycle.run

    def late(*given):
        make_limit("acme", resource="cpu", nominal="0")
        return decide(*given)

    monkeypatch.setattr(cycle, "run", late)
    run_scheduling_cycle()

    assert Job.objects.get().state == "queued"


def test_features_that_are_not_in_use_cost_a_cycle_no_statement(submitters):
    waits(submitters, "acme/red")
    found = features_in_use()

    with CaptureQueriesContext(connection) as asked:
        load_snapshot(database_now(), QUEUE_DEPTH, found)

    for table in ("billing_budget", "quotas_quotalimit", "quotas_userlimit", "federation_placementpolicy",
                  "federation_reservation", "clusters_maintenancewindow", "federation_preemption"):  # fmt: skip
        assert not any(table in statement["sql"] for statement in asked), table
