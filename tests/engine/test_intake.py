"""What is read of requests for reservations, of a job's data and of its throughput; and what is refused, by field."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from clusters.engine.gpu_share import gpu_per_unit
from federation.engine.intake.reading import MAX_FAULTS, Faults, Fields, Refused, child
from federation.engine.intake.reservation_reading import read_reservation
from federation.engine.intake.spec import Rules
from federation.engine.intake.work import read_data, read_throughput
from federation.engine.stuck import is_stuck

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POD_SET = {"count": 1, "cpu": "1", "memory": "1Gi"}


def wanted(**more):
    body = {"tenant": "acme", "name": "r", "ends_at": "2026-03-01T18:00:00Z", "pod_sets": [POD_SET]}
    return {name: value for name, value in (body | more).items() if value is not None}


def at(**later):
    return (NOW + timedelta(**later)).isoformat()


def test_a_reservation_is_read_with_its_shape():
    found = read_reservation(wanted(count=3, cluster="east", starts_at=at(hours=1)), NOW)
    assert (found.tenant_path, found.name, found.count) == ("acme", "r", 3)
    assert (found.starts_at, found.ends_at) == (NOW + timedelta(hours=1), NOW + timedelta(hours=6))
    assert found.shape.constraints.clusters == ("east",)
    (pod_set,) = found.shape.pod_sets
    assert (found.shape.name, pod_set.name, pod_set.image) == ("shape", "set-0", "registry.example/shape:1")
    plain = read_reservation(wanted(), NOW)
    assert (plain.starts_at, plain.count, plain.shape.constraints.clusters) == (NOW, 1, ())
    two = read_reservation(wanted(pod_sets=[POD_SET, POD_SET | {"name": "own"}]), NOW)
    assert [one.name for one in two.shape.pod_sets] == ["set-0", "own"]


def test_the_longest_and_furthest_reservations_are_read():
    assert read_reservation(wanted(ends_at=at(days=30)), NOW).ends_at == NOW + timedelta(days=30)
    assert read_reservation(wanted(starts_at=at(), ends_at=at(minutes=3)), NOW).starts_at == NOW
    assert read_reservation(wanted(starts_at=at(days=366), ends_at=at(days=367), count=1000), NOW).count == 1000
    assert read_reservation(wanted(tenant="a" * 1100), NOW).tenant_path == "a" * 1100
    for seconds in (None, 180, 24 * 3600):
        assert read_reservation(wanted(recall_seconds=seconds), NOW).recall_seconds == seconds


def faults_of(read, *given):
    with pytest.raises(Refused) as caught:
        read(*given)
    return {fault.field: fault.code for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("changed", "faults"),
    [
        ({"tenant": None}, {"tenant": "required"}),
        ({"tenant": "a" * 1101}, {"tenant": "too_long"}),
        ({"name": None}, {"name": "required"}),
        ({"name": "Not A Name"}, {"name": "bad_format"}),
        ({"name": "a" * 64}, {"name": "too_long"}),
        ({"ends_at": None}, {"ends_at": "required"}),
        ({"ends_at": "tomorrow"}, {"ends_at": "bad_format"}),
        ({"starts_at": at(seconds=-1)}, {"starts_at": "in_the_past"}),
        ({"starts_at": at(days=366, seconds=1), "ends_at": at(days=367)}, {"starts_at": "out_of_range"}),
        ({"ends_at": at()}, {"ends_at": "out_of_range"}),
        ({"ends_at": at(minutes=2, seconds=59)}, {"ends_at": "out_of_range"}),
        ({"ends_at": at(days=30, seconds=1)}, {"ends_at": "out_of_range"}),
        ({"count": 0}, {"count": "out_of_range"}),
        ({"count": 1001}, {"count": "out_of_range"}),
        ({"recall_seconds": 179}, {"recall_seconds": "out_of_range"}),
        ({"recall_seconds": 24 * 3600 + 1}, {"recall_seconds": "out_of_range"}),
        ({"cluster": "Bad"}, {"cluster": "bad_format"}),
        ({"cluster": "a" * 64}, {"cluster": "too_long"}),
        ({"cluster": "east", "constraints": {"clusters": ["west"]}}, {"cluster": "conflict"}),
        ({"constraints": {"overflow": [{"after_seconds": 0}]}}, {"constraints.overflow": "not_allowed"}),
        ({"constraints": {"reservation": "00000000-0000-0000-0000-000000000001"}}, {"constraints.reservation": "not_allowed"}),
        ({"pod_sets": [POD_SET | {"cpu": None}]}, {"pod_sets[0].cpu": "required"}),
        ({"pod_sets": [1]}, {"pod_sets[0]": "wrong_type"}),
        ({"image": "x"}, {"image": "unknown_field"}),
    ],
)  # fmt: skip
def test_a_reservation_is_refused_by_each_field_at_fault(changed, faults):
    assert faults_of(read_reservation, wanted(**changed), NOW) == faults


def test_a_cluster_among_the_constraints_is_the_one():
    found = read_reservation(wanted(cluster="east", constraints={"clusters": ["west", "east"]}), NOW)
    assert found.shape.constraints.clusters == ("east",)


def read_alone(read, value):
    faults = Faults()
    found = read(Fields(value, "", faults, frozenset({"data", "throughput"})), Rules())
    faults.refuse_if_any()
    return found


def test_datasets_are_read_with_what_is_read_of_them():
    found = read_alone(read_data, {"data": [{"name": "imagenet"}, {"name": "laion", "read": "2Gi"}]})
    assert [(need.name, need.size_bytes) for need in found] == [("imagenet", None), ("laion", 2 * 1024**3)]
    assert read_alone(read_data, {}) == ()
    assert len(read_alone(read_data, {"data": [{"name": f"d{number}"} for number in range(16)]})) == 16
    assert read_alone(read_data, {"data": [{"name": "d" * 120}]})[0].name == "d" * 120


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], {"data[2].name": "duplicate"}),
        ([{}], {"data[0].name": "required"}),
        ([{"name": "Not one"}], {"data[0].name": "bad_format"}),
        ([{"name": "a", "read": "much"}], {"data[0].read": "bad_quantity"}),
        ([{"name": "a", "size": "1Gi"}], {"data[0].size": "unknown_field"}),
        ([{"name": f"d{number}"} for number in range(17)], {"data": "too_many"}),
    ],
)
def test_datasets_are_refused_by_field(data, faults):
    assert faults_of(read_alone, read_data, {"data": data}) == faults


def test_throughput_is_read_in_thousandths_by_model():
    found = read_alone(read_throughput, {"throughput": {"H100": 2.4, "A100-80GB": 1, "T4": 0.001}})
    assert [(one.model, one.speed_milli) for one in found] == [("A100-80GB", 1000), ("H100", 2400), ("T4", 1)]


@pytest.mark.parametrize(
    ("speed", "code"),
    [(True, "wrong_type"), ("2", "wrong_type"), (None, "wrong_type"), (0, "out_of_range"), (0.0001, "out_of_range"),
     (1.0001, "out_of_range"), (-1, "out_of_range"), (float("inf"), "out_of_range"), (10**30, "out_of_range")],
)  # fmt: skip
def test_what_is_no_speed_is_refused(speed, code):
    assert faults_of(read_alone, read_throughput, {"throughput": {"H100": speed}}) == {"throughput.H100": code}


def test_a_model_must_be_one():
    assert faults_of(read_alone, read_throughput, {"throughput": {"not a model": 1}}) == {
        "throughput.'not a model'": "bad_format"
    }


def test_at_most_a_hundred_faults_are_told():
    faults = Faults()
    for number in range(200):
        faults.add(f"f{number}", "bad", "")
    assert len(faults.found) == MAX_FAULTS == 100


@pytest.mark.parametrize(
    ("path", "key", "told"),
    [
        ("", "a", "a"),
        ("x", "a", "x.a"),
        ("x", "a b", "x.'a b'"),
        ("", "k" * 80, "k" * 80),
        ("", "k" * 81, repr("k" * 40)),
    ],
)
def test_a_path_is_short_and_printable(path, key, told):
    assert child(path, key) == told


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        *(
            ("Pending", reason, True)
            for reason in (
                "InvalidImageName", "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "ImageInspectError",
                "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
                "ErrImagePull: not found: x",
            )
        ),
        ("Running", "ErrImagePull", False), ("Pending", "ContainerCreating", False), ("Pending", "", False),
    ],
)  # fmt: skip
def test_only_a_pending_pod_with_a_hopeless_reason_is_stuck(phase, reason, expected):
    assert is_stuck(phase, reason) is expected


@pytest.mark.parametrize(
    ("sharing", "model", "part"),
    [
        ("whole", "H100-80GB", Fraction(1)), ("mig:1g.10gb", "H100-80GB", Fraction(1, 7)),
        ("mig:3g.40gb", "", Fraction(3, 7)), ("mig:9g.40gb", "", Fraction(1)), ("mig:1g.6gb", "A30", Fraction(1, 4)),
        ("mig:4g.24gb", "A30", Fraction(1)), ("mig:1g.24gb", "RTX-PRO-6000", Fraction(1, 4)),
        ("mig:1g.24gb", "RTX-PRO-5000", Fraction(1, 2)), ("mig:1g.16gb", "RTX-PRO-4500", Fraction(1, 2)),
        ("mig:odd", "", Fraction(1)), ("timeslice:4", "", Fraction(1, 4)), ("timeslice:0", "", Fraction(1)),
        ("timeslice:", "", Fraction(1)), ("mps:4", "", Fraction(1)),
        ("timeslice:999999999", "", Fraction(1, 999_999_999)), ("timeslice:9999999999", "", Fraction(1)),
    ],
)  # fmt: skip
def test_a_unit_is_the_part_of_a_gpu_that_its_sharing_says(sharing, model, part):
    assert gpu_per_unit(sharing, model) == part
