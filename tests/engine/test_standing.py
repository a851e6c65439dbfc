"""How clusters and nodes stand: health, taints, and devices that are counted once."""

from datetime import UTC, datetime, timedelta

import pytest

from clusters.engine.health import (
    FRESH,
    Freshness,
    Reason,
    answering_health,
    clock_findings,
    creates_findings,
    device_findings,
    freshness,
    inventory_findings,
    merged,
    services_findings,
    size_findings,
    stale_findings,
)
from clusters.engine.offered import NONE, DeviceCount, count_on_node
from clusters.engine.taints import Standing, standing, tolerations_for, untolerated

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def codes(found):
    return [one.code for one in found]


@pytest.mark.parametrize(
    ("seen", "observed", "expected"),
    [
        (60, 60, FRESH),
        (61, 0, Freshness(1)),
        (0, 90, Freshness(1)),
        (119, 0, Freshness(1)),
        (120, 30, Freshness(2)),
        (121, 0, Freshness(2, is_stale=True)),
        (None, 600, Freshness(10, is_stale=True)),
        (600, None, Freshness(10, is_stale=True)),
        (None, None, FRESH),
    ],
)
def test_data_is_as_old_as_the_older_of_contact_and_observation(seen, observed, expected):
    def ago(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    assert freshness(NOW, ago(seen), ago(observed), 120) == expected
    assert codes(stale_findings(expected)) == ["stale"] * expected.is_stale


def test_data_that_is_hardly_old_counts_as_a_minute_old():
    assert freshness(NOW, NOW - timedelta(seconds=20), NOW, 30) == Freshness(1)


@pytest.mark.parametrize(
    ("skew_ms", "said"),
    [(60_000, None), (-60_000, None), (60_001, "60 s ahead of"), (-61_999, "61 s behind")],
)
def test_a_clock_may_differ_by_a_minute(skew_ms, said):
    found = clock_findings(skew_ms)
    assert codes(found) == ["clock_skew"] * (said is not None)
    assert all(said in one.message for one in found)


def test_a_quarter_of_the_nodes_may_not_be_down_and_five_are_named():
    assert inventory_findings(0, 0, []) == inventory_findings(9, 2, []) == []
    assert codes(inventory_findings(8, 2, [])) == ["nodes_not_ready"]
    (named,) = inventory_findings(9, 0, [f"n{n}" for n in range(5)])
    assert named.message.endswith("n0, n1, n2, n3, n4.")
    (named,) = inventory_findings(9, 0, [f"n{n}" for n in range(6)])
    assert named.message.endswith("n0, n1, n2, n3, n4 and more.")
    assert codes(inventory_findings(4, 1, ["n0"])) == ["nodes_not_ready", "implausible_capacity"]


@pytest.mark.parametrize(
    ("findings", "code", "longest"),
    [
        (creates_findings, "creates_fail", None),
        (services_findings, "services_closed", 600),
        (device_findings, "devices_closed", 300),
        (size_findings, "too_large", 300),
    ],
)
def test_what_a_cluster_refuses_is_a_reason_with_a_bounded_text(findings, code, longest):
    assert findings("") == []
    (found,) = findings("x" * 700)
    assert found.code == code
    assert found.message.count("x") - findings("y")[0].message.count("x") == (longest or 700)


def test_a_report_replaces_the_reasons_of_its_origin_and_no_others():
    before = [
        {"code": "unreachable", "message": "a"},
        {"code": "clock_skew", "message": "b"},
        {"code": "old", "message": "c"},
    ]
    after = merged(before, "contact", [Reason("auth_failed", "d")])
    assert after == [
        {"code": "auth_failed", "message": "d"}, {"code": "clock_skew", "message": "b"}, {"code": "old", "message": "c"},
    ]  # fmt: skip
    assert merged(after, "contact", []) == after[1:]
    for code, origin in (
        ("identity_changed", "contact"), ("missing_permission", "access"), ("excess_permission", "access"),
        ("unproven_permission", "access"), ("devices_closed", "devices"), ("too_large", "size"),
        ("creates_fail", "creates"), ("services_closed", "services"), ("nodes_not_ready", "inventory"),
        ("implausible_capacity", "inventory"),
    ):  # fmt: skip
        assert merged([{"code": code, "message": ""}], origin, []) == []
    assert (answering_health([]), answering_health(before)) == ("ready", "degraded")


def taint(key, effect="NoSchedule", value=""):
    return {"key": key, "effect": effect, "value": value}


def test_pods_tolerate_what_marks_their_accelerator_or_their_capacity():
    for vendor, key in (
        ("nvidia", "nvidia.com/gpu"), ("nvidia", "sku"), ("nvidia", "accelerator"), ("amd", "amd.com/gpu"), ("amd", "sku"),
        ("amd", "accelerator"), ("google", "google.com/tpu"), ("intel", "gpu.intel.com/i915"),
        ("intel", "gpu.intel.com/xe"), ("intel", "habana.ai/gaudi"),
    ):  # fmt: skip
        assert untolerated([taint(key)], vendor, "on_demand") == ""
        assert untolerated([taint(key)], "", "on_demand") == f"{key}:NoSchedule"
    for kind, key in (
        ("spot", "cloud.google.com/gke-spot"), ("spot", "cloud.google.com/gke-preemptible"),
        ("spot", "cloud.google.com/gke-provisioning"), ("spot", "kubernetes.azure.com/scalesetpriority"),
        ("spot", "karpenter.sh/capacity-type"), ("spot", "eks.amazonaws.com/capacityType"),
        ("spot", "switchyard.dev/capacity-type"), ("reserved", "switchyard.dev/capacity-type"),
    ):  # fmt: skip
        assert untolerated([taint(key)], "", kind) == ""
        assert untolerated([taint(key)], "", "on_demand") == f"{key}:NoSchedule"
    assert tolerations_for("", "on_demand") == ()
    assert tolerations_for("google", "on_demand") == (
        {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},
    )


def test_the_first_taint_that_keeps_pods_off_is_named_with_its_value():
    given = [taint("soft", "PreferNoSchedule"), taint("sku", value="gpu"), taint("db", value="yes"), taint("late")]
    assert untolerated(given, "nvidia", "") == "db=yes:NoSchedule"
    assert untolerated(given, "", "") == "sku=gpu:NoSchedule"
    assert untolerated([taint("sku", "NoExecute")], "nvidia", "") == "sku:NoExecute"
    assert untolerated([{"effect": "NoSchedule"}], "", "") == ":NoSchedule"
    assert untolerated([{"key": "a"}], "", "") == ""


def stands(taints, *, is_ready=True, is_schedulable=True, **flavors):
    return standing(is_ready=is_ready, is_schedulable=is_schedulable, taints=taints, flavors=flavors)


def test_a_node_repels_only_the_pods_that_do_not_tolerate_it():
    h100, xe = ("nvidia", "spot"), ("intel", "spot")
    assert stands([], h100=h100) == Standing("", {})
    assert stands([], is_ready=False, h100=h100) == Standing("not ready", {})
    assert stands([], is_ready=False, is_schedulable=False) == Standing("not ready", {})
    assert stands([taint("sku")], is_schedulable=False, h100=h100) == Standing("not schedulable", {})
    assert stands([taint("sku")], h100=h100) == Standing("", {"": "with taint sku:NoSchedule"})
    assert stands([taint("sku")], h100=h100, xe=xe) == Standing(
        "", {"": "with taint sku:NoSchedule", "xe": "with taint sku:NoSchedule"}
    )
    # Bought as spot, it takes pods without a device too.
    assert stands([taint("cloud.google.com/gke-spot")], h100=h100) == Standing("", {})
    assert stands([taint("db")], h100=h100) == Standing("with taint db:NoSchedule", {})
    assert stands([taint("db")]) == Standing("with taint db:NoSchedule", {})
    # Of several, the one that its devices' pods meet.
    assert stands([taint("sku"), taint("db")], h100=h100) == Standing("with taint db:NoSchedule", {})


def test_every_device_of_a_node_is_in_one_field():
    def counts(units, used, others, *, is_seen=True, is_open=True):
        found = count_on_node(units, used, others, is_seen=is_seen, is_open=is_open)
        assert found.total == units
        return found.ours, found.others, found.free, found.out_of_service, found.unseen

    assert counts(8, 5, 2) == (3, 2, 3, 0, 0)
    assert counts(8, 5, 2, is_open=False) == (3, 2, 0, 3, 0)
    assert counts(8, 5, 2, is_seen=False) == (3, 2, 0, 0, 3)
    assert counts(8, 5, 2, is_seen=False, is_open=False) == (3, 2, 0, 0, 3)
    assert counts(8, 9, 12) == (0, 8, 0, 0, 0)
    assert counts(8, -1, -1) == (0, 0, 8, 0, 0)
    assert counts(8, 3, -1) == (3, 0, 5, 0, 0)
    total = DeviceCount(1, 2, 4, 8, 16) + DeviceCount(32, 64, 128, 256, 512)
    assert total == DeviceCount(33, 66, 132, 264, 528)
    assert (total.used, total.idle, total.unavailable, total.total) == (99, 924, 792, 1023)
    assert NONE + NONE == NONE
