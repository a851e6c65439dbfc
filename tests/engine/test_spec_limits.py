"""How far each field of a job spec may go: the largest that is read, and the code of what goes further."""

import pytest

from federation.engine.intake.normal_form import encode, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import _rough_size, read_spec
from tests.builders import make_spec

MONTH = 30 * 24 * 3600


def pod(**more):
    return make_spec(pod=more)


def gpu(**more):
    return pod(gpu=more)


def constraints(**more):
    return make_spec(constraints=more)


def pod_sets(count):
    (one,) = make_spec()["pod_sets"]
    return make_spec(pod_sets=[one | {"name": f"s{number}"} for number in range(count)])


def tiers(count):
    return constraints(overflow=[{"after_seconds": number} for number in range(count)])


@pytest.mark.parametrize(
    ("most", "more", "field", "code"),
    [
        (make_spec(name="a" * 63), make_spec(name="a" * 64), "name", "too_long"),
        (pod_sets(16), pod_sets(17), "pod_sets", "too_many"),
        (pod_sets(1), pod_sets(0), "pod_sets", "required"),
        (make_spec(deadline_seconds=MONTH), make_spec(deadline_seconds=MONTH + 1), "deadline_seconds", "out_of_range"),
        (make_spec(deadline_seconds=1), make_spec(deadline_seconds=0), "deadline_seconds", "out_of_range"),
        (make_spec(estimated_seconds=MONTH), make_spec(estimated_seconds=MONTH + 1), "estimated_seconds", "out_of_range"),
        (make_spec(estimated_seconds=1), make_spec(estimated_seconds=0), "estimated_seconds", "out_of_range"),
        (make_spec(checkpoint_seconds=MONTH), make_spec(checkpoint_seconds=MONTH + 1), "checkpoint_seconds", "out_of_range"),
        (make_spec(checkpoint_seconds=1), make_spec(checkpoint_seconds=0), "checkpoint_seconds", "out_of_range"),
        (make_spec(completions=100_000), make_spec(completions=100_001), "completions", "out_of_range"),
        (make_spec(completions=1), make_spec(completions=0), "completions", "out_of_range"),
        (pod(count=10_000), pod(count=10_001), "pod_sets[0].count", "out_of_range"),
        (pod(count=1), pod(count=0), "pod_sets[0].count", "out_of_range"),
        (pod(image="r.example/" + "a" * 502), pod(image="r.example/" + "a" * 503), "pod_sets[0].image", "too_long"),
        (pod(command=["x"] * 256), pod(command=["x"] * 257), "pod_sets[0].command", "too_many"),
        (pod(args=["x"] * 256), pod(args=["x"] * 257), "pod_sets[0].args", "too_many"),
        (pod(args=["x" * 32_768]), pod(args=["x" * 32_769]), "pod_sets[0].args[0]", "too_long"),
        (pod(command=["x" * 32_768]), pod(command=["x" * 32_769]), "pod_sets[0].command[0]", "too_long"),
        (pod(env={f"A{n}": "" for n in range(256)}), pod(env={f"A{n}": "" for n in range(257)}), "pod_sets[0].env", "too_many"),
        (pod(env={"A": "x" * 65_535}), pod(env={"A": "x" * 65_536}), "pod_sets[0].env", "too_large"),
        (pod(env={"A": "ä" * 10}), pod(env={"A": "x" * 65_537}), "pod_sets[0].env.A", "too_long"),
        (pod(cpu="1m"), pod(cpu="0"), "pod_sets[0].cpu", "out_of_range"),
        (pod(cpu="1024"), pod(cpu="1024001m"), "pod_sets[0].cpu", "out_of_range"),
        (pod(memory="1Mi"), pod(memory=str(2**20 - 1)), "pod_sets[0].memory", "out_of_range"),
        (pod(memory="64Ti"), pod(memory=str(64 * 2**40 + 1)), "pod_sets[0].memory", "out_of_range"),
        (gpu(count=64), gpu(count=65), "pod_sets[0].gpu.count", "out_of_range"),
        (gpu(count=1), gpu(count=0), "pod_sets[0].gpu.count", "out_of_range"),
        (gpu(mig="1g.10gb"), gpu(), "pod_sets[0].gpu.count", "required"),
        (gpu(fraction="0.999"), gpu(fraction="1.0"), "pod_sets[0].gpu.fraction", "bad_format"),
        (gpu(fraction="0.001"), gpu(fraction="0.0"), "pod_sets[0].gpu.fraction", "bad_format"),
        (gpu(fraction=0.5), gpu(fraction="0.5", mig="1g.10gb"), "pod_sets[0].gpu.mig", "not_allowed"),
        (gpu(fraction=0.5), gpu(fraction="0.5", count=1), "pod_sets[0].gpu.count", "not_allowed"),
        (gpu(count=1, models=[f"M{n}" for n in range(32)]), gpu(count=1, models=[f"M{n}" for n in range(33)]),
         "pod_sets[0].gpu.models", "too_many"),
        (gpu(count=1, vendor="google"), gpu(count=1, vendor="other"), "pod_sets[0].gpu.vendor", "unknown_value"),
        (constraints(clusters=[f"c{n}" for n in range(100)]), constraints(clusters=[f"c{n}" for n in range(101)]),
         "constraints.clusters", "too_many"),
        (constraints(capacity_types=["spot"]), constraints(capacity_types=["spot"] * 4), "constraints.capacity_types", "too_many"),
        (constraints(reservation="a" * 63), constraints(reservation="a" * 64), "constraints.reservation", "too_long"),
        (tiers(8), tiers(9), "constraints.overflow", "too_many"),
        (constraints(overflow=[{"after_seconds": 0}, {"after_seconds": MONTH}]),
         constraints(overflow=[{"after_seconds": 0}, {"after_seconds": MONTH + 1}]),
         "constraints.overflow[1].after_seconds", "out_of_range"),
        (make_spec(throughput={f"M{n}": 1 for n in range(32)}), make_spec(throughput={f"M{n}": 1 for n in range(33)}),
         "throughput", "too_many"),
        (make_spec(throughput={"H100": 1000}), make_spec(throughput={"H100": 1000.001}), "throughput.H100", "out_of_range"),
        (make_spec(labels={f"k{n}": "" for n in range(64)}), make_spec(labels={f"k{n}": "" for n in range(65)}),
         "labels", "too_many"),
    ],
)  # fmt: skip
def test_what_is_at_its_limit_is_read_and_what_goes_further_is_refused_by_name(most, more, field, code):
    read_spec(most, Rules())
    with pytest.raises(Refused) as caught:
        read_spec(more, Rules())
    assert [(fault.field, fault.code) for fault in caught.value.faults] == [(field, code)]


def test_a_whole_spec_has_at_most_256_kib():
    def of_size(count, rest):
        return make_spec(pod={"args": ["x" * 32_000] * count + ["x" * rest]})

    rest = 256 * 1024 - len(encode(spec_json(read_spec(of_size(8, 0), Rules()))))
    assert len(encode(spec_json(read_spec(of_size(8, rest), Rules())))) == 256 * 1024
    with pytest.raises(Refused) as caught:
        read_spec(of_size(8, rest + 1), Rules())
    assert [(fault.field, fault.code) for fault in caught.value.faults] == [("", "too_large")]


@pytest.mark.parametrize(("label", "most"), [("run-seconds", MONTH), ("exit-code", 255)])
def test_a_simulated_run_goes_as_far_as_its_limit(label, most):
    key = f"sim.switchyard.dev/{label}"
    for value in ("0", str(most)):
        read_spec(make_spec(labels={key: value}), Rules(allow_simulation=True))
    for value in (str(most + 1), "-1", "1.5", "\uff11", ""):
        with pytest.raises(Refused) as caught:
            read_spec(make_spec(labels={key: value}), Rules(allow_simulation=True))
        assert [fault.field for fault in caught.value.faults] == [f"labels.{key}"]


def test_what_is_not_said_has_its_default():
    spec = read_spec(make_spec(), Rules())
    (only,) = spec.pod_sets
    assert (only.count, only.command, only.args, only.env, only.gpu) == (1, (), (), (), None)
    assert (only.cpu_millicores, only.memory_bytes) == (1000, 2**30)
    assert (spec.deadline_seconds, spec.completions, spec.estimated_seconds, spec.checkpoint_seconds) == (
        86_400, None, None, None,
    )  # fmt: skip
    assert (spec.priority_class, spec.strategy, spec.on_cluster_lost) == ("normal", "balanced", "hold")
    assert (spec.labels, spec.data, spec.throughput, spec.constraints.reservation) == ((), (), (), "")
    assert read_spec(constraints(reservation="nightly"), Rules()).constraints.reservation == "nightly"


@pytest.mark.parametrize(
    "more",
    [
        {"pod": {"command": ["é" * 100] * 9}},
        {"pod": {"args": [""] * 90}},
        {"pod": {"env": {f"K{n}": "\x01" * 100 for n in range(9)}}},
        {"pod": {"init": [{"image": "get:1", "args": ["é" * 200]}]}},
        {"pod": {"sidecars": [{"name": "logs", "image": "ship:2", "cpu": "1", "memory": "1Gi", "args": ["é" * 200]}]}},
        {"pod": {"ports": [{"name": f"port-{n}-abcdefg", "number": 3000 + n} for n in range(8)]}},
        {"pod": {"scratch": {"path": "/s" + "c" * 200, "size": "1Gi"}}},
        {"pod": {"mounts": [{"storage": f"s{n}", "path": f"/p{n}", "sub_path": "a" * 90} for n in range(4)]}},
        {"pod": {"mounts": [{"storage": f"s{n}", "path": f"/p{n}"} for n in range(4)]}},
        {"pod": {"mounts": [{"storage": "s", "path": f"/{'p' * 200}"}]}},
        {"pod": {"secrets": [{"secret": f"s{n}", "env": f"E{n}"} for n in range(4)]}},
        {"pod": {"secrets": [{"secret": "s", "file": f"/{'f' * 200}"}]}},
        {"pod": {"secrets": [{"secret": "s", "env": "E" * 128}]}},
        {"constraints": {"clusters": [f"{n}" for n in range(99)], "regions": ["eu-*"]}},
        {"constraints": {"overflow": [{"after_seconds": 0, "clusters": [f"{n}" for n in range(99)]}] }},
        {"data": [{"name": f"d{n}", "read": "1Gi"} for n in range(9)]},
        {"throughput": {f"M{n}": 1 for n in range(32)}},
        {"labels": {f"k{n}": "v" * 60 for n in range(64)}},
        {"failure_rules": [{"name": "r", "when": {"exit_codes": [f"{n}-200" for n in range(100, 116)], "log": ["*lost*"]},
                            "text": "ü" * 90, "then": "stop"}]},
    ],
)  # fmt: skip
def test_the_rough_size_of_a_spec_grows_by_at_least_what_a_field_adds_to_it(more):
    """So that no spec beyond the limit passes for a small one."""
    without, given = (read_spec(make_spec(**changes), Rules()) for changes in ({}, more))
    bytes_added = len(encode(spec_json(given))) - len(encode(spec_json(without)))
    assert _rough_size(given) - _rough_size(without) >= bytes_added > 100
