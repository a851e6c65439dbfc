from datetime import timedelta

import pytest

from federation.models import Attempt, Job
from foundation.clock import now
from foundation.models import OutboxMessage, Routine
from quotas.models import Hold
from tests.builders import make_cluster, make_tenant, make_user
from tests.rooms.federation.test_jobs_api import make_attempt

pytestmark = pytest.mark.django_db


def samples(client, **headers):
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 200
    lines = [line.rpartition(" ") for line in response.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_the_standing_of_the_gateway_is_told_in_numbers(client):
    cluster = make_cluster("acme", "east", last_seen_at=now() - timedelta(seconds=7))
    tenant, user = make_tenant("acme/research"), make_user()
    for reason in ("waiting_for_capacity", "waiting_for_capacity", "waiting_for_quota"):
        Job.objects.create(tenant=tenant, created_by=user, name="a", spec={}, shape="s", reason_code=reason)
    running = Job.objects.create(tenant=tenant, created_by=user, name="b", spec={}, shape="s", state="running")
    make_attempt(running, cluster=cluster, state="running")
    Hold.objects.create(holder_id=Attempt.objects.get().id, tenant=tenant, cluster_name="east", amounts={})
    OutboxMessage.objects.create(topic="cycle", created_at=now() - timedelta(seconds=3))
    Routine.objects.create(name="cycle", finished_at=now() - timedelta(seconds=5))
    found = samples(client)
    assert found['switchyard_jobs_queued{reason="waiting_for_capacity"}'] == 2
    assert found['switchyard_jobs_queued{reason="waiting_for_quota"}'] == 1
    assert found['switchyard_attempts_live{cluster="east",state="running"}'] == 1
    assert found["switchyard_holds_pending"] == 1
    assert found["switchyard_outbox_messages"] == 1
    assert 3 <= found["switchyard_outbox_lag_seconds"] < 60
    assert 7 <= found['switchyard_observer_lag_seconds{cluster="east"}'] < 60
    assert 5 <= found['switchyard_routine_age_seconds{routine="cycle"}'] < 60
    assert "switchyard_cycle_seconds_count" in found


def test_a_scrape_costs_a_handful_of_queries(client, django_assert_max_num_queries):
    with django_assert_max_num_queries(12):
        samples(client)


def test_figures_are_nobody_elses_business(client):
    assert client.get("/metrics", REMOTE_ADDR="192.0.2.1").status_code == 404
    assert client.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 404
    assert client.get("/metrics", REMOTE_ADDR="").status_code == 404
    assert client.post("/metrics").status_code == 405


def test_with_a_token_set_only_the_token_counts(client, settings):
    settings.METRICS_TOKEN = "scrape-me"
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"Authorization": "Bearer scrape-m\u00eb"}).status_code == 404
    response = client.get("/metrics", REMOTE_ADDR="192.0.2.1", headers={"Authorization": "Bearer scrape-me"})
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain")
