"""What the tests of utilisation share: a Prometheus on loopback, and metered pods of attempts."""

import re
from datetime import timedelta
from urllib.parse import parse_qs

from django.db import connection

from billing.models import TelemetryHour, UtilisationHour
from billing.operations import record_runs
from billing.operations.utilisation import plan_hours
from clusters.engine.telemetry import Metric, Over
from clusters.operations.telemetry import WantedPrometheus, set_prometheus
from federation.models import PodRun
from federation.operations import measure_utilisation
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import make_run

from .test_hostile_reports import make_attempt

HOUR = timedelta(hours=1)
QUERY = "/api/v1/query"
TOKEN = "canary-31c7e0"
GPU, NODE = "GPU-1", "n1"
KEPT = r"max by \(namespace,pod,exported_namespace,exported_pod,UUID,gpu,GPU_I_ID\)"
SERIES = r"DCGM_FI_[A-Z_]+\{(exported_)?namespace=~\"[a-z0-9|.\[\]-]+\",(exported_)?pod=~\"[a-z0-9|.\[\]-]+\"\}"
ALLOWED = re.compile(
    rf"(avg|count)_over_time\({KEPT} \({SERIES}\)\[60m:1m\]\)|{KEPT} \(max_over_time\({SERIES}\[60m\]\)\)"
)
ASKED = re.compile(r"(?P<over>(avg|max|count)_over_time)\(.*?(?P<metric>DCGM_FI_[A-Z_]+)\{")
FULL = {
    (Metric.UTILISATION, Over.MEAN): "40",
    (Metric.UTILISATION, Over.COUNT): "60",
    (Metric.SM_ACTIVE, Over.MEAN): "0.25",
    (Metric.SM_ACTIVE, Over.COUNT): "60",
    (Metric.TENSOR_ACTIVE, Over.MEAN): "0.125",
    (Metric.MEMORY_USED, Over.PEAK): "20480",
    (Metric.POWER, Over.MEAN): "350.5",
}


def last_hour():
    """A whole hour that has ended, and is due."""
    return now().replace(minute=0, second=0, microsecond=0) - 3 * HOUR


class Prometheus:
    """A server that answers `told` (a value for each question) for the pods in `labels`, or as `answer` does."""

    def __init__(self, api):
        self.api, self.asked, self.told, self.labels, self.answer = api, [], dict(FULL), [], None
        api.answers[QUERY] = self.take

    @property
    def url(self):
        return f"http://127.0.0.1:{self.api.port}"

    def take(self, request):
        form = {name: values[0] for name, values in parse_qs(request.sent.decode()).items()}
        self.asked.append((form, dict(request.headers)))
        if self.answer is not None:
            self.answer(request)
            return
        value = self.told.get(question_of(form["query"]))
        request.say(200, vector(*((labels, value) for labels in self.labels if value is not None)))


def question_of(query):
    """The metric and the function of a query."""
    found = ASKED.search(query)
    return Metric(found["metric"]), Over(found["over"])


def vector(*series):
    return {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": one, "value": [1.5, value]} for one, value in series]},
    }


def labels_of(pod, **more):
    return {"namespace": "swy-team-1", "pod": pod, "UUID": GPU, "gpu": "0", "Hostname": NODE} | more


def metered_pod(cluster, name="swy-o-0", *, hour=None, seconds=3600, path="acme/team", units=1, **fields):
    """The meter's row of a pod that ran in the hour."""
    hour = hour or last_hour()
    attempt = make_attempt(cluster, hours=30, path=path)
    pod = PodRun.objects.create(
        attempt=attempt, cluster_id=cluster.id, remote_object=attempt.remote_objects.get(), uid=str(attempt.id), name=name, place=0,
        phase="Succeeded", started_at=hour, finished_at=hour + timedelta(seconds=seconds), observed_at=now(),
    )  # fmt: skip
    run = make_run(
        cluster, path, started_at=hour, until_at=hour + timedelta(seconds=seconds), run_id=attempt.id, source_uid=pod.uid,
        workload_id=attempt.job_id, gpu_units=units, **{"gpu_model": "H100-80GB", "sharing": "whole"} | fields,
    )  # fmt: skip
    record_runs([run])
    return attempt


def connect(cluster, prometheus, token=TOKEN):
    return set_prometheus(SYSTEM, cluster.id, WantedPrometheus(prometheus.url, token))


def only(*hours):
    """No hour but these is asked for: a round over the whole day takes a second."""
    plan_hours()
    TelemetryHour.objects.exclude(hour__in=hours).update(next_at=None)


def measure():
    """A round in which every hour is due, as after any wait."""
    TelemetryHour.objects.filter(next_at__isnull=False).update(next_at=now() - HOUR)
    measure_utilisation()


def rows():
    """What is stored, without the time of it."""
    names = ("hour", "coverage_seconds", "utilisation", "sm_active", "tensor_active", "peak_memory_mib", "power_watts")
    return list(UtilisationHour.objects.order_by("meter_id", "hour").values_list(*names))


def told_of(hour=None):
    return TelemetryHour.objects.get(hour=hour or last_hour())


def stored_everywhere(text):
    """The tables that contain the text anywhere, in any column."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
        )
        found = []
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT EXISTS (SELECT 1 FROM "{table}" AS row WHERE row::text LIKE %s)', [f"%{text}%"])
            if cursor.fetchone()[0]:
                found.append(table)
    return found
