"""The round of utilisation asks a real server on loopback, believes nothing that it says beyond what it was asked, and charges nothing."""

import json
import logging
import time
from datetime import timedelta
from decimal import Decimal
from urllib.parse import parse_qs

import pytest
from django.db import connection

from billing.engine.utilisation import Hour, Utilised
from billing.models import LedgerLine, Meter, TelemetryHour, UsageSegment, UtilisationHour
from billing.operations import create_price, posting
from billing.operations.prices import NewPrice
from billing.operations.utilisation import Told, claim_hours, keep_hour, plan_hours
from billing.queries import usage_report
from clusters.drivers import telemetry
from clusters.engine.telemetry import Metric, Over
from federation.operations import measure_utilisation
from foundation.clock import now
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.apiserver import api_server
from tests.builders import make_cluster, make_flavor

from .measuring import (
    ALLOWED,
    FULL,
    HOUR,
    TOKEN,
    Prometheus,
    connect,
    labels_of,
    last_hour,
    measure,
    metered_pod,
    only,
    question_of,
    rows,
    stored_everywhere,
    told_of,
    vector,
)

pytestmark = pytest.mark.django_db(transaction=True)
UTILISED = (Decimal("0.4"), Decimal("0.25"), Decimal("0.125"), 20480, Decimal("350.5"))


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    return cluster


@pytest.fixture
def prometheus():
    with api_server(tls=False) as api:
        yield Prometheus(api)


@pytest.fixture
def measured(north, prometheus):
    """A metered pod of an hour, and a Prometheus that reports its GPU."""
    metered_pod(north)
    connect(north, prometheus)
    prometheus.labels = [labels_of("swy-o-0")]
    only(last_hour())
    return north


def test_an_hour_becomes_a_row_and_the_questions_are_the_allowed_ones(measured, prometheus):
    measure_utilisation()
    assert rows() == [(last_hour(), 3600, *UTILISED)]
    until = str(int((last_hour() + HOUR).timestamp()))
    assert len(prometheus.asked) == len(FULL)
    for form, headers in prometheus.asked:
        assert set(form) == {"query", "time", "timeout"}
        assert form["time"] == until
        assert headers["Authorization"] == f"Bearer {TOKEN}"
        plain, exported = form["query"].split(" or ")
        assert ALLOWED.fullmatch(plain)
        assert ALLOWED.fullmatch(exported)
        assert 'namespace=~"swy-team-1",pod=~"swy-o-0"' in plain
    told = told_of()
    assert (told.pods, told.measured, told.foreign, told.unusable, told.why_not) == (1, 1, 0, 0, "")


def test_hours_without_pods_ask_nothing_and_the_last_day_is_planned(north, prometheus):
    connect(north, prometheus)
    measure_utilisation()
    assert prometheus.asked == []
    assert 23 <= TelemetryHour.objects.count() <= 25
    assert TelemetryHour.objects.exclude(asks=1).count() == 0


def test_the_same_hour_twice_is_the_same_row_and_what_is_complete_is_not_asked_again(measured, prometheus):
    measure_utilisation()
    before = list(UtilisationHour.objects.values())
    prometheus.asked.clear()
    measure()
    assert prometheus.asked == []
    assert list(UtilisationHour.objects.values()) == before


def test_a_late_answer_completes_a_row_and_one_that_saw_less_changes_nothing(measured, prometheus):
    prometheus.told[Metric.UTILISATION, Over.COUNT] = "30"
    measure_utilisation()
    assert rows()[0][1] == 1800
    prometheus.told |= {(Metric.UTILISATION, Over.COUNT): "20", (Metric.UTILISATION, Over.MEAN): "99"}
    measure()
    assert rows()[0][1:3] == (1800, Decimal("0.4"))
    prometheus.told |= {(Metric.UTILISATION, Over.COUNT): "60", (Metric.UTILISATION, Over.MEAN): "80"}
    measure()
    assert rows()[0][1:3] == (3600, Decimal("0.8"))
    assert UtilisationHour.objects.count() == 1


def test_usage_that_is_metered_late_is_measured_late(north, prometheus):
    connect(north, prometheus)
    prometheus.labels = [labels_of("swy-o-0")]
    measure_utilisation()
    assert rows() == []
    metered_pod(north)
    measure()
    assert len(rows()) == 1


def test_after_a_day_an_hour_is_asked_for_no_more(measured, prometheus):
    prometheus.answer = lambda request: request.say(503, {})
    measure_utilisation()
    told = told_of()
    assert told.why_not == "it answered 503"
    assert now() < told.next_at <= last_hour() + HOUR + timedelta(days=1)
    TelemetryHour.objects.filter(id=told.id).update(hour=last_hour() - timedelta(days=2), next_at=now() - HOUR)
    prometheus.asked.clear()
    prometheus.answer = None
    TelemetryHour.objects.exclude(id=told.id).update(next_at=None)
    assert claim_hours(4) == []


def say(body):
    return lambda request: request.say(200, body)


def redirect(request):
    request.say(302, {}, {"Location": "/elsewhere"})


def cut(request):
    request.send_response_only(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"status"')
    request.close_connection = True


def endless(request):
    request.send_response_only(200)
    request.end_headers()
    request.close_connection = True
    for _ in range(400):
        request.wfile.write(b" " * 65536)


OWN = labels_of("swy-o-0")
NO_ANSWERS = {
    "400": (lambda request: request.say(400, {"error": TOKEN}), "it answered 400"),
    "401": (lambda request: request.say(401, {}), "it answered 401"),
    "500": (lambda request: request.say(500, b"\xff" * 100), "it answered 500"),
    "redirect": (redirect, "it answered 302"),
    "cut": (cut, "the connection failed"),
    "endless": (endless, "the answer is too large"),
    "large": (say(b" " * 3_000_000), "the answer is too large"),
    "empty": (say(b""), "the answer is not JSON"),
    "text": (say(b"<html>canary</html>"), "the answer is not JSON"),
    "bytes": (say(b"\xff\xfe"), "the answer is not JSON"),
    "nested": (say(b"[" * 100_000), "the answer is not JSON"),
    "keys twice": (say(b'{"status":"success","status":"error"}'), "the answer is not JSON"),
    "literal NaN": (say(b'{"status":"success","data":{"resultType":"vector","result":[NaN]}}'), "the answer is not JSON"),
    "list": (say([]), "the answer is not a vector"),
    "failure": (say({"status": "error", "error": "canary"}), "the answer is not a vector"),
    "matrix": (say({"status": "success", "data": {"resultType": "matrix", "result": []}}), "the answer is not a vector"),
    "no list": (say({"status": "success", "data": {"resultType": "vector", "result": {}}}), "the answer is not a vector"),
    "no labels": (say({"status": "success", "data": {"resultType": "vector", "result": [7]}}), "the answer is not a vector"),
    "no value": (say({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}}]}}), "the answer is not a vector"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_ANSWERS)
def test_what_is_no_answer_stores_a_reason_and_nothing_of_the_text(measured, prometheus, case):
    prometheus.answer, why_not = NO_ANSWERS[case]
    measure_utilisation()
    assert rows() == []
    told = told_of()
    assert told.why_not.startswith(why_not)
    assert "canary" not in told.why_not
    assert told.next_at > now()


@pytest.mark.parametrize(
    ("labels", "value", "foreign", "unusable"),
    [
        (labels_of("swy-o-0", namespace="kube-system"), "40", 1, 0),
        (labels_of("other"), "40", 1, 0),
        (labels_of(""), "40", 1, 0),
        (labels_of("swy-o-0'; DROP TABLE billing_meter; --"), "40", 1, 0),
        (labels_of("x" * 100_000), "40", 1, 0),
        (labels_of("swy-o-0", exported_pod="other", exported_namespace="swy-team-1"), "40", 1, 0),
        (labels_of(["swy-o-0"]), "40", 1, 0),
        ({}, "40", 1, 0),
        (labels_of("swy-o-0", UUID="", gpu=""), "40", 0, 1),
        (labels_of("swy-o-0", UUID="g" * 300), "40", 0, 1),
        (OWN, "NaN", 0, 1),
        (OWN, "+Inf", 0, 1),
        (OWN, "-Inf", 0, 1),
        (OWN, "-1", 0, 1),
        (OWN, "100.01", 0, 1),
        (OWN, "1e400", 0, 1),
        (OWN, "", 0, 1),
        (OWN, "forty", 0, 1),
        (OWN, "9" * 300, 0, 1),
        (OWN, 40, 0, 1),
        (OWN, None, 0, 1),
        (labels_of("swy-o-0", GPU_I_ID="3"), "40", 0, 1),
    ],
)
def test_foreign_series_and_numbers_that_are_none_are_counted_and_left_out(
    measured, prometheus, labels, value, foreign, unusable
):
    def answer(request):
        question = question_of(parse_qs(request.sent.decode())["query"][0])
        if question == (Metric.UTILISATION, Over.MEAN):
            request.say(200, vector((labels, value)))
        elif question == (Metric.UTILISATION, Over.COUNT) and not foreign:
            request.say(
                200, vector((labels, "60")) if labels.get("UUID", "") and len(labels["UUID"]) < 300 else vector()
            )
        else:
            request.say(200, vector())

    prometheus.answer = answer
    measure_utilisation()
    assert rows() == []
    told = told_of()
    assert (told.foreign, told.unusable, told.measured, told.why_not) == (foreign, unusable, 0, "")


def test_numbers_of_others_never_reach_the_pod_beside_them(measured, prometheus):
    prometheus.labels = [OWN, labels_of("other", UUID="GPU-9"), labels_of("swy-o-0", namespace="other", UUID="GPU-8")]
    measure_utilisation()
    assert rows() == [(last_hour(), 3600, *UTILISED)]
    assert told_of().foreign == 2 * len(FULL)


def test_a_gpu_that_the_pod_does_not_have_is_left_out(measured, prometheus):
    prometheus.labels = [OWN, labels_of("swy-o-0", UUID="GPU-2")]
    measure_utilisation()
    assert rows() == [(last_hour(), 3600, *UTILISED)]
    assert told_of().unusable == 1


def test_a_pod_is_never_measured_longer_than_it_is_metered(north, prometheus):
    metered_pod(north, seconds=600)
    connect(north, prometheus)
    only(last_hour())
    prometheus.labels = [OWN]
    measure_utilisation()
    assert rows()[0][1] == 600


def test_half_of_the_gpus_measure_half_of_the_time(north, prometheus):
    metered_pod(north, units=2)
    connect(north, prometheus)
    only(last_hour())
    prometheus.labels = [OWN]
    measure_utilisation()
    assert rows()[0][1:3] == (1800, Decimal("0.4"))


def test_a_slice_is_measured_by_its_multiprocessors_and_a_shared_gpu_not_at_all(north, prometheus):
    metered_pod(north, "slice", sharing="mig:1g.10gb")
    metered_pod(north, "shared", sharing="timeslice:4")
    connect(north, prometheus)
    only(last_hour())
    prometheus.labels = [labels_of("slice", GPU_I_ID="1"), labels_of("shared")]
    measure_utilisation()
    assert rows() == [(last_hour(), 3600, Decimal("0.25"), Decimal("0.25"), Decimal("0.125"), 20480, None)]
    assert told_of().pods == 1
    assert all('pod=~"slice"' in form["query"] for form, _ in prometheus.asked)


def test_two_pods_of_one_name_cannot_be_told_apart(north, prometheus):
    metered_pod(north)
    metered_pod(north)
    connect(north, prometheus)
    only(last_hour())
    prometheus.labels = [OWN]
    measure_utilisation()
    assert rows() == []


def test_a_slow_prometheus_costs_its_time_and_not_that_of_another(measured, prometheus, monkeypatch):
    monkeypatch.setattr(telemetry, "ASK_SECONDS", 0.6)
    prometheus.answer = lambda request: (time.sleep(1.5), request.say(200, vector()))
    south = make_cluster(name="south")
    make_flavor(south, "h100")
    metered_pod(south)
    with api_server(tls=False) as api:
        other = Prometheus(api)
        other.labels = [OWN]
        connect(south, other)
        only(last_hour())
        began = time.monotonic()
        measure_utilisation()
    assert time.monotonic() - began < 10
    reasons = dict(TelemetryHour.objects.filter(hour=last_hour()).values_list("cluster__name", "why_not"))
    assert reasons == {"north": "no complete answer within 0.6 s", "south": ""}
    assert Meter.objects.filter(utilisation__isnull=False).get().cluster_id == south.id


def test_an_address_that_is_refused_later_gets_no_request(measured, prometheus, settings):
    settings.EGRESS_ALLOW = []
    measure_utilisation()
    assert prometheus.asked == []
    assert "127.0.0.1 is refused" in told_of().why_not


def test_the_answer_to_an_earlier_ask_changes_nothing(measured, prometheus):
    plan_hours()
    while (found := claim_hours(1))[0].hour != last_hour():
        pass
    first = found[0]
    TelemetryHour.objects.filter(id=first.id).update(asks=first.asks + 1)
    row = Utilised(Meter.objects.get().id, 3600, 0.5, None, None, None, None)
    assert not keep_hour(first, Told(Hour((row,), 0), 1, 1))
    assert rows() == []


def test_a_killed_ask_is_repeated(measured, prometheus):
    plan_hours()
    while claim_hours(4):
        pass
    measure_utilisation()
    assert rows() == []
    measure()
    assert len(rows()) == 1


def charges():
    """All that is charged, byte for byte."""
    report = usage_report(SYSTEM, "", last_hour() - timedelta(days=2), now() + HOUR, ("tenant", "job", "day"))
    segments = list(UsageSegment.objects.order_by("id").values("period", "cost", "currency", "gpu_milliseconds"))
    lines = list(LedgerLine.objects.order_by("id").values("amount", "currency", "account_id"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT md5(string_agg(d::text, '' ORDER BY d.id)) FROM billing_meterday AS d")
        days = cursor.fetchone()
        cursor.execute("SELECT md5(string_agg(m::text, '' ORDER BY m.id)) FROM billing_meter AS m")
        meters = cursor.fetchone()
    return repr((report.rows, report.totals, segments, lines, days, meters)).encode()


@pytest.mark.parametrize("lie", ["0", "100", "37.5"])
def test_charges_are_the_same_with_telemetry_off_on_and_lying(north, prometheus, lie):
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=last_hour() - timedelta(days=40)))
    metered_pod(north, hour=last_hour() - 12 * HOUR)
    metered_pod(north, "swy-o-1")
    posting.post_days()
    off = charges()
    connect(north, prometheus)
    only(last_hour(), last_hour() - 12 * HOUR)
    prometheus.labels = [OWN, labels_of("swy-o-1")]
    prometheus.told[Metric.UTILISATION, Over.MEAN] = lie
    measure_utilisation()
    assert len(rows()) == 2
    posting.post_days()
    assert charges() == off
    prometheus.answer = lambda request: request.say(200, vector((OWN, "1e9")))
    measure()
    posting.post_days()
    assert charges() == off


def test_the_token_is_nowhere_but_sealed(measured, prometheus, caplog):
    caplog.set_level(logging.DEBUG)
    for answer in (None, lambda request: request.say(500, {"error": TOKEN}), redirect, cut):
        prometheus.answer = answer
        UtilisationHour.objects.all().delete()
        measure()
    assert stored_everywhere(TOKEN) == []
    assert stored_everywhere(TOKEN.encode().hex()) == []
    assert TOKEN not in caplog.text
    assert TOKEN not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)), default=str)
    TelemetryHour.objects.update(next_at=now() - HOUR)
    assert TOKEN not in repr(claim_hours(1))
