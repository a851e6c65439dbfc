"""The same round against a real Prometheus: PromQL accepts each question, and what it answers is what the samples say."""

from collections import defaultdict
from decimal import Decimal

import pytest

from billing.models import TelemetryHour, UtilisationHour
from clusters.drivers.telemetry import Inquiry, ask_all
from clusters.engine.hook_servers import read_hook_url
from clusters.engine.telemetry import PODS_PER_QUESTION, PodName, questions, read_answer
from clusters.operations.telemetry import WantedPrometheus, set_prometheus
from devtools.prometheus import programs
from devtools.prometheus.server import served
from federation.models import Attempt
from federation.operations import measure_utilisation
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor

from .measuring import HOUR, last_hour, metered_pod, only

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(2400)]
UTIL, SM, TENSOR = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
MEMORY, POWER = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"
TEAM, OTHER_TEAM = "swy-team-1", "swy-team-2"
HOSTILE = 'a"}) or vector(1) # \\ \n é \u202e'
NOISE = {"modelName": HOSTILE, "container": "x" * 4096, "DCGM_FI_DRIVER_VERSION": "570.86", "job": "dcgm"}


class Samples:
    """What an exporter said, in OpenMetrics. Seconds count from the begin of the hour that is measured."""

    def __init__(self):
        self.start, self.lines = int(last_hour().timestamp()), defaultdict(list)

    def say(self, metric, labels, value, first=15, last=3600, every=15):
        text = ",".join(f'{name}="{escaped(one)}"' for name, one in labels.items())
        for at in range(first, last + 1, every):
            told = value(at) if callable(value) else value
            self.lines[metric].append((text, self.start + at, told))

    def text(self):
        parts = []
        for metric, found in self.lines.items():
            parts += [
                f"# TYPE {metric} gauge",
                *(f"{metric}{{{text}}} {told} {at}" for text, at, told in sorted(found)),
            ]
        return "\n".join([*parts, "# EOF", ""])


def escaped(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def gpu(pod, uuid="GPU-1", namespace=TEAM, **more):
    return NOISE | {"namespace": namespace, "pod": pod, "UUID": uuid, "gpu": "0", "Hostname": "n1", "instance": "10.0.0.1:9400"} | more  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _built():
    """Before any test asks which hour is the last."""
    programs.locate()


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    return cluster


@pytest.fixture
def measured(north, tmp_path, settings):
    """Measures the hour with these samples; says what the round said of it, and each pod's figures."""

    def measured_with(samples, attempts):
        with served(tmp_path, samples.text()) as url:
            set_prometheus(SYSTEM, north.id, WantedPrometheus(url, "a-token"))
            only(last_hour())
            measure_utilisation()
        names = {attempt.id: name for name, attempt in attempts.items()}
        found = {names[row.meter.run_id]: row for row in UtilisationHour.objects.select_related("meter")}
        assert {row.hour for row in found.values()} <= {last_hour()}
        return TelemetryHour.objects.get(hour=last_hour()), found

    return measured_with


def figures(row):
    return row.coverage_seconds, row.utilisation, row.sm_active, row.tensor_active, row.peak_memory_mib, row.power_watts


def ratio(part, whole):
    return round(Decimal(part) / Decimal(whole), 6)


def test_two_gpus_are_measured_and_the_hours_beside_are_not(north, measured):
    """GPU-1 is at 80 % for half of the hour and at 20 % for the rest, GPU-2 at 10 %. What lies at the hour's begin, before and after it is of others."""
    said = Samples()
    for number, busy in (("GPU-1", lambda at: 80 if at <= 1800 else 20), ("GPU-2", 10)):
        said.say(UTIL, gpu("two", number), busy)
        said.say(SM, gpu("two", number), 0.5 if number == "GPU-1" else 0.25)
        said.say(TENSOR, gpu("two", number), 0.125)
        said.say(MEMORY, gpu("two", number), lambda at: 70_000 if at == 1815 else 1000)
        said.say(POWER, gpu("two", number), 300 if number == "GPU-1" else 200.5)
        for first in (-3600, 3615):
            said.say(UTIL, gpu("two", number), 100, first, first + 3600)
            said.say(MEMORY, gpu("two", number), 81_000, first, first + 3600)
    told, found = measured(said, {"two": metered_pod(north, "two", units=2)})
    assert figures(found["two"]) == (
        3600, ratio(30 * 80 + 30 * 20 + 60 * 10, 120 * 100), Decimal("0.375"), Decimal("0.125"), 70_000, Decimal("250.25"),
    )  # fmt: skip
    assert (told.pods, told.measured, told.foreign, told.unusable, told.why_not) == (1, 1, 0, 0, "")


PODS = ("gap", "restart", "twice", "renamed", "nan", "infinite", "beyond", "train.x-0", "elsewhere", "silent")
LOOK_ALIKES = ("trainxx-0", "xtrain.x-0", "train.x-0x", "train.x-0\n", "train.x-0|.*", '"}) or vector(1)', "TRAIN.X-0")


def test_gaps_restarts_renamed_labels_slices_and_others(north, measured):
    said = Samples()
    # Twenty minutes without samples. Prometheus holds the last one for less than five minutes.
    said.say(UTIL, gpu("gap"), 40, 30, 1200, 30)
    said.say(UTIL, gpu("gap"), 100, 2430, 3600, 30)
    # The exporter restarts as another pod: what it says has other labels from then on.
    said.say(UTIL, gpu("restart", Hostname="exporter-a", instance="10.0.0.1:9400"), 20, 30, 1800, 30)
    said.say(UTIL, gpu("restart", Hostname="exporter-b", instance="10.0.0.9:9400"), 60, 1830, 3600, 30)
    # Two jobs scrape one exporter.
    said.say(UTIL, gpu("twice", job="dcgm"), 30)
    said.say(UTIL, gpu("twice", job="nodes"), 30)
    # Prometheus kept the exporter's own pod as `pod`.
    exported = gpu("exporter-a", namespace="gpu-operator") | {"exported_namespace": TEAM, "exported_pod": "renamed"}
    said.say(UTIL, exported, 70)
    # A slice, its neighbour on the same GPU, and the whole GPU, of which DCGM says no pod.
    said.say(SM, gpu("slice", GPU_I_ID="3", GPU_I_PROFILE="1g.10gb"), 0.25)
    said.say(MEMORY, gpu("slice", GPU_I_ID="3", GPU_I_PROFILE="1g.10gb"), 9000)
    said.say(SM, gpu("neighbour", GPU_I_ID="4", GPU_I_PROFILE="1g.10gb"), 0.75)
    said.say(UTIL, gpu("", namespace=""), 99)
    # It ran for ten minutes.
    said.say(UTIL, gpu("short"), 90, 15, 600)
    # Numbers that are none.
    said.say(UTIL, gpu("nan"), "NaN")
    said.say(UTIL, gpu("infinite"), "+Inf")
    said.say(UTIL, gpu("beyond"), 101)
    # Names that only look like those that were asked for, and the same name in a namespace of others.
    said.say(UTIL, gpu("train.x-0"), 50)
    for name in LOOK_ALIKES:
        said.say(UTIL, gpu(name, "GPU-7"), 100)
    said.say(UTIL, gpu("train.x-0", "GPU-8", namespace="kube-system"), 100)
    # Both namespaces and both names are asked for, and this pod is in the one with the name in the other.
    said.say(UTIL, gpu("elsewhere", namespace=OTHER_TEAM), 5)
    said.say(UTIL, gpu("train.x-0", "GPU-9", namespace=OTHER_TEAM), 100)
    attempts = {name: metered_pod(north, name) for name in PODS}
    attempts["slice"] = metered_pod(north, "slice", sharing="mig:1g.10gb")
    attempts["short"] = metered_pod(north, "short", seconds=600)
    Attempt.objects.filter(id=attempts["elsewhere"].id).update(namespace=OTHER_TEAM)
    told, found = measured(said, attempts)
    assert {name: (row.coverage_seconds, row.utilisation) for name, row in found.items()} == {
        "gap": (44 * 60, ratio(24 * 40 + 20 * 100, 44 * 100)),
        "restart": (3600, ratio(30 * 20 + 30 * 60, 60 * 100)),
        "twice": (3600, Decimal("0.3")),
        "renamed": (3600, Decimal("0.7")),
        "slice": (3600, Decimal("0.25")),
        "short": (600, Decimal("0.9")),
        "train.x-0": (3600, Decimal("0.5")),
        "elsewhere": (3600, Decimal("0.05")),
    }
    assert found["slice"].peak_memory_mib == 9000
    # The pod of the name in the other namespace is in two answers; three means are no numbers.
    assert (told.pods, told.measured, told.foreign, told.unusable, told.why_not) == (12, 8, 2, 3, "")


def test_it_accepts_the_longest_questions(tmp_path):
    """A hundred pods with names and namespaces of the greatest length, one of which reports."""
    pods = [
        PodName(f"n{number:03}".ljust(63, "x"), f"p.{number:03}-".ljust(253, "x"))
        for number in range(PODS_PER_QUESTION)
    ]
    said = Samples()
    for metric, value in ((UTIL, 40), (SM, 0.5), (TENSOR, 0.25), (MEMORY, 1000), (POWER, 300)):
        said.say(metric, gpu(pods[7].name, namespace=pods[7].namespace), value)
    asked = list(questions(pods))
    with served(tmp_path, said.text()) as url:
        until = int((last_hour() + HOUR).timestamp())
        (answers,) = ask_all([Inquiry(read_hook_url(url), [query for *_, query in asked], until)])
    assert answers.why_not == ""
    read = [read_answer(body, *one[:3]) for one, body in zip(asked, answers.bodies, strict=True)]
    assert [[(number.pod, number.value) for number in one.numbers] for one in read] == [
        [(pods[7], value)] for value in (40, 60, 0.5, 60, 0.25, 1000, 300)
    ]
    assert sum(one.foreign + one.unusable for one in read) == 0
