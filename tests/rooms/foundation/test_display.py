from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from foundation.templatetags import display


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (90_000, "1 d 01 h"),
        (None, "–"),
    ],
)
def test_a_duration_shows_two_units_at_most(seconds, text):
    assert display.duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1234.565", "1,234.56 USD"),
        ("1234.575", "1,234.58 USD"),
        ("0", "0.00 USD"),
        ("0.004", "0.0040 USD"),
        ("-5", "-5.00 USD"),
    ],
)
def test_money_is_rounded_half_even_to_cents_and_small_change_is_not_hidden(amount, text):
    assert display.money(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("price", "text"),
    [("2.740000", "2.74 USD"), ("0.042000", "0.042 USD"), ("3", "3.00 USD"), ("1234.5", "1,234.50 USD")],
)
def test_a_unit_price_keeps_every_digit_that_matters(price, text):
    assert display.rate(Decimal(price)) == text


@pytest.mark.parametrize(
    ("mib", "text"), [(512, "512 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (2 * 1024**2, "2 TiB")]
)
def test_memory_is_written_in_the_unit_that_reads_best(mib, text):
    assert display.memory(mib) == text


@pytest.mark.parametrize(
    ("value", "resource", "text"),
    [
        (500, "gpu", "0.5 GPUs"),
        (16_000, "gpu:H100-80GB", "16 GPUs"),
        (1000, "gpu", "1 GPU"),
        (0, "gpu", "0 GPUs"),
        (1000, "cpu", "1 core"),
        (1500, "cpu", "1.5 cores"),
        (2048, "memory", "2 GiB"),
    ],
)
def test_a_quota_amount_has_its_resources_unit(value, resource, text):
    assert display.amount(value, resource) == text


def test_an_instant_is_utc_for_machines_and_on_hover():
    at = datetime(2026, 11, 21, 1, 2, 3, tzinfo=timezone(timedelta(hours=9)))
    html = display.instant(at)
    assert 'datetime="2026-11-20T16:02:03.000Z"' in html
    assert 'title="2026-11-20 16:02:03 UTC"' in html
    assert ">20 Nov 16:02 UTC<" in html
    assert display.instant(None) == "–"


def test_the_length_of_an_interval_is_its_duration():
    start = datetime(2026, 11, 21, tzinfo=UTC)
    assert display.between(start, start + timedelta(minutes=3)) == "3 min 00 s"


@pytest.mark.parametrize("render", [display.state, display.tenant_path, lambda text: display.bar(1, 2, text)])
def test_text_is_escaped_wherever_markup_is_made(render):
    assert "<script" not in render('<script>"')


def test_a_bar_never_leaves_its_track():
    html = display.bar(12, 8, "over")
    assert 'width="100.00%"' in html
    assert 'width="0.00%"' in display.bar(0, 0, "nothing")


@pytest.mark.parametrize(
    ("figure", "grouped", "shortest"),
    [
        ("1180.470", "1,180.470", "1,180.47"),
        ("19.000", "19.000", "19"),
        ("-100", "-100", "-100"),
        ("0.0420", "0.0420", "0.042"),
    ],
)
def test_a_documents_figure_keeps_its_digits_or_loses_only_zeros(figure, grouped, shortest):
    assert display.grouped(figure) == grouped
    assert display.shortest(figure) == shortest


@pytest.mark.parametrize(("text", "shown"), [("2026-08", "August 2026"), ("2026-08-31", "31 August 2026")])
def test_months_and_days_of_documents_are_written_out(text, shown):
    assert display.calendar(text) == shown
