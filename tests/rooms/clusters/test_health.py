"""Health follows from what is reported, and an event is written only when something changed."""

from datetime import timedelta

import pytest

from clusters.engine.health import Reason, inventory_findings
from clusters.models import Cluster, ClusterEvent
from clusters.operations import record_auth_failure, record_contact, record_findings, record_silence
from foundation import clock
from foundation.ids import new_id
from foundation.models import OutboxMessage
from tests.builders import make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster():
    return Cluster.objects.create(owner=make_tenant("acme"), name="east", server="https://203.0.113.1", identity="u1")


def state_of(cluster):
    cluster.refresh_from_db()
    return cluster.health, [reason["code"] for reason in cluster.reasons]


def kinds():
    return list(ClusterEvent.objects.order_by("id").values_list("kind", flat=True))


def test_contact_is_noted_without_an_event(cluster):
    assert record_contact(cluster.id, clock_skew_ms=20, kubernetes_version="v1.36.2") is False
    cluster.refresh_from_db()
    assert clock.now() - cluster.last_seen_at < timedelta(seconds=5)
    assert (cluster.clock_skew_ms, cluster.kubernetes_version) == (20, "v1.36.2")
    assert kinds() == []
    assert not OutboxMessage.objects.exists()


def test_silence_is_told_once_and_keeps_when_it_began(cluster):
    assert record_silence(cluster.id, "no connection") is True
    cluster.refresh_from_db()
    began = cluster.silent_since
    assert began is not None
    assert record_silence(cluster.id, "no connection") is False
    assert record_silence(cluster.id, "no answer in time") is False
    cluster.refresh_from_db()
    assert cluster.silent_since == began
    assert cluster.reasons == [{"code": "unreachable", "message": "no answer in time"}]
    assert kinds() == ["health.unreachable"]
    assert set(OutboxMessage.objects.values_list("topic", flat=True)) == {"cycle", "observe"}


def test_contact_ends_silence(cluster):
    record_silence(cluster.id, "no connection")
    assert record_contact(cluster.id) is True
    assert state_of(cluster) == ("ready", [])
    assert cluster.silent_since is None
    assert kinds() == ["health.unreachable", "health.ready"]


def test_a_refused_credential_is_not_silence_but_lasts_as_long(cluster):
    record_silence(cluster.id, "no connection")
    cluster.refresh_from_db()
    began = cluster.silent_since
    assert record_auth_failure(cluster.id, "Unauthorized") is True
    assert state_of(cluster) == ("auth_failed", ["auth_failed"])
    assert cluster.silent_since == began


def test_findings_degrade_and_clear_by_origin(cluster):
    assert record_findings(cluster.id, "inventory", [Reason("nodes_not_ready", "3 of 4 nodes are not ready.")]) is True
    assert record_contact(cluster.id, clock_skew_ms=-90_000) is False
    assert state_of(cluster) == ("degraded", ["clock_skew", "nodes_not_ready"])
    assert record_findings(cluster.id, "inventory", []) is False
    assert state_of(cluster) == ("degraded", ["clock_skew"])
    assert record_contact(cluster.id, clock_skew_ms=-60_000) is True
    assert state_of(cluster) == ("ready", [])
    assert kinds() == ["health.degraded", "health.degraded", "health.degraded", "health.ready"]


def test_a_changed_number_in_a_reason_is_no_event(cluster):
    record_contact(cluster.id, clock_skew_ms=90_000)
    record_contact(cluster.id, clock_skew_ms=95_000)
    cluster.refresh_from_db()
    assert "95 s ahead" in cluster.reasons[0]["message"]
    assert kinds() == ["health.degraded"]


def test_contact_without_a_measured_clock_keeps_what_the_clock_was_found_to_be(cluster):
    record_contact(cluster.id, clock_skew_ms=90_000)
    record_contact(cluster.id)
    assert state_of(cluster) == ("degraded", ["clock_skew"])


def test_findings_about_a_silent_cluster_do_not_wake_it(cluster):
    record_silence(cluster.id, "no connection")
    assert record_findings(cluster.id, "inventory", [Reason("nodes_not_ready", "all")]) is False
    assert state_of(cluster) == ("unreachable", ["nodes_not_ready", "unreachable"])
    record_contact(cluster.id)
    assert state_of(cluster) == ("degraded", ["nodes_not_ready"])


def test_another_cluster_in_its_place_is_silence_with_its_own_name(cluster):
    record_silence(cluster.id, "Another cluster answers.", code="identity_changed")
    assert state_of(cluster) == ("unreachable", ["identity_changed"])


def test_reports_of_unknown_clusters_are_dropped():
    for report in (
        lambda: record_contact(new_id()),
        lambda: record_silence(new_id(), "x"),
        lambda: record_auth_failure(new_id(), "x"),
        lambda: record_findings(new_id(), "inventory", []),
    ):
        assert report() is False
    assert kinds() == []


@pytest.mark.parametrize(("not_ready", "codes"), [(0, []), (1, []), (2, ["nodes_not_ready"]), (8, ["nodes_not_ready"])])
def test_a_quarter_of_the_nodes_down_degrades(not_ready, codes):
    assert [reason.code for reason in inventory_findings(8, not_ready, [])] == codes


def test_an_empty_cluster_is_not_degraded_for_it():
    assert inventory_findings(0, 0, []) == []


def test_nodes_that_claim_too_much_are_named_up_to_a_point():
    [reason] = inventory_findings(9, 0, [f"n{n}" for n in range(9)])
    assert reason.message == "Nodes whose implausible capacity counts as 0: n0, n1, n2, n3, n4 and more."
