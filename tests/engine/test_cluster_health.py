"""When a cluster's data is recent, and what speaks against a cluster."""

from datetime import UTC, datetime, timedelta

import pytest

from clusters.engine.health import (
    OPEN_STATES,
    ORIGIN_OF,
    Freshness,
    Reason,
    answering_health,
    clock_findings,
    creates_findings,
    device_findings,
    freshness,
    inventory_findings,
    merged,
    orphans_finding,
    services_findings,
    size_findings,
    stale_findings,
    unknown_runs_finding,
    vanished_finding,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds):
    return None if seconds is None else NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seen", "observed", "expected"),
    [
        (0, 0, Freshness(0, False)),
        (150, 150, Freshness(0, False)),
        (151, 0, Freshness(2, False)),
        (0, 151, Freshness(2, False)),
        (300, 0, Freshness(5, False)),
        (301, 0, Freshness(5, True)),
        (None, 301, Freshness(5, True)),
        (301, None, Freshness(5, True)),
        (None, None, Freshness(0, False)),
    ],
)
def test_data_is_as_old_as_the_older_of_contact_and_observation(seen, observed, expected):
    assert freshness(NOW, ago(seen), ago(observed), 300) == expected


def test_data_that_is_no_longer_recent_is_at_least_a_minute_old():
    assert freshness(NOW, ago(6), ago(6), 10) == Freshness(1, False)


def codes(found):
    return [reason.code for reason in found]


def test_each_finding_has_its_code_and_its_origin():
    found = [
        *stale_findings(Freshness(7, True)), *creates_findings("no"), *clock_findings(60_001),
        *inventory_findings(4, 1, ["n"]), *device_findings("no"), *size_findings("it is large"),
        *services_findings("no"), vanished_finding(3, 3), orphans_finding(60, 70), unknown_runs_finding(2),
    ]  # fmt: skip
    assert codes(found) == [
        "stale", "creates_fail", "clock_skew", "nodes_not_ready", "implausible_capacity", "devices_closed", "too_large",
        "services_closed", "too_many_vanished", "too_many_orphans", "unknown_runs",
    ]  # fmt: skip
    assert "7 min ago" in found[0].message
    assert [reason.message.partition(" o")[0] for reason in found[-3:]] == ["3", "60", "2"]
    assert not [
        *stale_findings(Freshness(7, False)), *creates_findings(""), *clock_findings(60_000), *clock_findings(-60_000),
        *inventory_findings(4, 0, []), *device_findings(""), *size_findings(""), *services_findings(""),
    ]  # fmt: skip
    assert dict(ORIGIN_OF) == {
        "unreachable": "contact", "identity_changed": "contact", "auth_failed": "contact", "clock_skew": "clock",
        "missing_permission": "access", "excess_permission": "access", "unproven_permission": "access",
        "devices_closed": "devices", "too_large": "size", "creates_fail": "creates", "services_closed": "services", "nodes_not_ready": "inventory",
        "implausible_capacity": "inventory", "too_many_vanished": "comparison", "too_many_orphans": "comparison",
        "unknown_runs": "comparison",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("skew_ms", "told"), [(61_999, "61 s ahead of the gateway's"), (-90_000, "90 s behind the gateway's")]
)
def test_a_wrong_clock_is_told_in_whole_seconds(skew_ms, told):
    (reason,) = clock_findings(skew_ms)
    assert told in reason.message


@pytest.mark.parametrize(("nodes", "not_ready", "counts"), [(4, 1, 1), (5, 1, 0), (8, 2, 1), (9, 2, 0), (0, 0, 0)])
def test_a_quarter_of_the_nodes_down_counts(nodes, not_ready, counts):
    assert len(inventory_findings(nodes, not_ready, [])) == counts


def test_five_nodes_are_named():
    names = list("abcdef")
    assert inventory_findings(9, 0, names[:5])[0].message.endswith("a, b, c, d, e.")
    assert inventory_findings(9, 0, names)[0].message.endswith("a, b, c, d, e and more.")


def test_texts_from_clusters_are_cut():
    assert device_findings("x" * 301)[0].message.endswith("them: " + "x" * 300)
    assert "because " + "x" * 300 + ". Nothing" in size_findings("x" * 301)[0].message


def test_a_report_replaces_the_reasons_of_its_origin_alone():
    current = [Reason("too_large", "a").as_json(), Reason("clock_skew", "b").as_json(), Reason("odd", "c").as_json()]
    found = merged(current, "clock", [Reason("nodes_not_ready", "d")])
    assert found == [
        {"code": "nodes_not_ready", "message": "d"},
        {"code": "odd", "message": "c"},
        {"code": "too_large", "message": "a"},
    ]
    assert codes([Reason(**one) for one in merged(current, "clock", [])]) == ["odd", "too_large"]


def test_a_cluster_that_responds_is_ready_or_degraded_and_open_either_way():
    assert {answering_health([]), answering_health([{"code": "odd"}])} == OPEN_STATES == {"ready", "degraded"}
    assert answering_health([]) == "ready"
