"""Alerts as hooks get them: texts, bodies, signatures, and when a failed delivery is repeated."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.hooks import body_of, next_attempt, signature, text_of
from clusters.engine.hook_servers import read_hook_url

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
ID = UUID(int=7)
BUDGET = {
    "tenant": "acme", "at": "2026-11-27T12:00:00.000Z", "budget": "b", "measure": "gpu_hours", "currency": "", "period": "quarter",
    "period_start": "2026-10-01T00:00:00.000Z", "period_end": "2027-01-01T00:00:00.000Z", "percent": 80,
    "spent": "400.500000000000", "amount": "500.000000000000",
}  # fmt: skip
EXPECTED = {
    "expected": "510.000000000000",
    "low": "490.000000000000",
    "high": "600.000000000000",
    "reached_on": "2026-12-20",
}
DOCUMENT = {
    "tenant": "acme/one", "at": "2026-11-27T12:00:00.000Z", "invoice": "i", "document": "credit_note", "number": "C-7", "month": "2026-10",
    "currency": "KWD", "total": "-1.234000000000",
}  # fmt: skip


def test_texts_name_the_tenant_and_all_figures():
    assert text_of("budget_spent", BUDGET) == (
        "acme has spent 80 % of its budget for 2026-Q4: 400.50 GPU-hours of 500.00 GPU-hours."
    )
    assert text_of("budget_forecast", BUDGET | EXPECTED) == (
        "acme: 510.00 GPU-hours are expected by the end of 2026-Q4, between 490.00 GPU-hours and 600.00 GPU-hours."
        " 80 % of 500.00 GPU-hours are expected to be reached on 2026-12-20."
    )
    assert text_of("document", DOCUMENT) == "Credit note C-7 of acme/one for 2026-10 is issued: -1.234 KWD."
    assert text_of("test", {"tenant": "acme", "hook": "h"}) == "This is a test of the alert hook h of acme."


def test_a_body_has_amounts_as_exact_text_and_is_the_same_each_time():
    body = body_of("json", ID, "budget_forecast", BUDGET | EXPECTED)
    assert body == body_of("json", ID, "budget_forecast", dict(reversed((BUDGET | EXPECTED).items())))
    assert json.loads(body) == {
        "id": str(ID), "kind": "budget_forecast", "at": BUDGET["at"], "tenant": "acme",
        "text": text_of("budget_forecast", BUDGET | EXPECTED),
        "data": {
            "amount": "500.00", "budget": "b", "currency": "", "expected": "510.00", "high": "600.00", "low": "490.00",
            "measure": "gpu_hours", "percent": 80, "period": "quarter", "period_end": "2027-01-01T00:00:00.000Z",
            "period_start": "2026-10-01T00:00:00.000Z", "reached_on": "2026-12-20", "spent": "400.50",
        },
    }  # fmt: skip
    assert json.loads(body_of("json", ID, "document", DOCUMENT))["data"]["total"] == "-1.234"


def test_a_signature_is_of_the_seconds_and_the_body():
    # Computed with: printf '1764244800.{}' | openssl dgst -sha256 -hmac swyh_x
    assert signature("swyh_x", datetime(2025, 11, 27, 12, tzinfo=UTC), b"{}") == f"t=1764244800,v1={VECTOR}"


VECTOR = "a006006390b62f30b12a34da877efdd6da95e4d02e7731d059c95466fa4868a9"


@pytest.mark.parametrize(
    ("tried", "wait"),
    [
        (timedelta(0), timedelta(minutes=1)),
        (timedelta(seconds=-3), timedelta(minutes=1)),
        (timedelta(minutes=4), timedelta(minutes=4)),
        (timedelta(hours=7), timedelta(hours=6)),
        (timedelta(hours=20), timedelta(hours=4)),
        (timedelta(hours=24), None),
        (timedelta(hours=30), None),
    ],
)
def test_it_is_repeated_after_as_long_as_it_has_been_tried_and_given_up_after_a_day(tried, wait):
    assert next_attempt(NOON, NOON + tried) == (None if wait is None else NOON + tried + wait)


def test_attempts_of_a_delivery_that_always_fails():
    at, attempts = NOON, [NOON]
    while (at := next_attempt(NOON, at)) is not None:
        attempts.append(at)
    assert len(attempts) == 14
    assert attempts[-1] == NOON + timedelta(days=1)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=2)))
def test_an_attempt_is_never_soon_and_never_after_the_day(tried):
    again = next_attempt(NOON, NOON + tried)
    assert (again is None) == (tried >= timedelta(days=1))
    assert again is None or NOON + tried < again <= NOON + timedelta(days=1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/a/b", "https://hooks.example.com"),
        ("https://hooks.example.com:8443/a", "https://hooks.example.com:8443"),
        ("http://127.0.0.1:443/a", "http://127.0.0.1:443"),
        ("https://[2001:db8::1]/a", "https://[2001:db8::1]"),
    ],
)
def test_the_path_of_a_url_is_not_shown(url, shown):
    assert read_hook_url(url).shown == shown
