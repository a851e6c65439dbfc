"""The month as CSV, XLSX and Parquet: one query, the same digits, no limit of rows."""

import csv
import io
import zipfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from xml.etree import ElementTree as ET

import pyarrow.parquet
import pytest

from billing.api import usage_files
from billing.engine.usage_file import COLUMNS
from billing.models import LedgerPeriod, Price, UsageSegment
from billing.operations import record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import usage_report
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_run, make_user

from .ledgers import OCTOBER, at, priced_cluster

pytestmark = pytest.mark.django_db
UNTIL = at(1, month=11)
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


@pytest.fixture
def october():
    north = priced_cluster(amount="2.333333")
    record_runs(
        [
            make_run(
                north, f"acme/{('research', 'sales')[number % 2]}", started_at=at(3 + number, 23),
                until_at=at(3 + number, 23) + timedelta(hours=2, milliseconds=7 * number), workload_name="=HYPERLINK(1)",
                memory_mib=1000 + number, flavor="h100" if number % 3 else "a100",
                **({"gpu_model": "H100-80GB", "sharing": "mig:1g.10gb"} if number == 4 else {}),
            )
            for number in range(8)
        ]
    )  # fmt: skip
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("1.1"), "USD", at(9), at(10, 12), reason="as agreed"))
    organisation = Tenant.objects.get(path="acme")
    LedgerPeriod.objects.create(organisation=organisation, month=OCTOBER.date())


@pytest.fixture
def reader():
    user = make_user()
    bind(user, "acme", "viewer")
    return user


def export(client, user, kind, **query):
    query = {"month": "2026-10", "format": kind, **query}
    response = client.get("/api/v1/exports/usage", query, headers=bearer(user))
    assert response.status_code == 200, response.content
    assert response.headers["Content-Disposition"].endswith(f'-{query["month"]}.{kind}"')
    return b"".join(response.streaming_content)


def from_csv(content):
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def sheets_of(content):
    """The cells of each sheet, as the text that is in the file."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        names = [name for name in book.namelist() if name.startswith("xl/worksheets/sheet")]
        names.sort(key=lambda name: int(name.removeprefix("xl/worksheets/sheet").removesuffix(".xml")))
        for name in names:
            rows = ET.fromstring(book.read(name)).iter(f"{SHEET}row")
            yield [{cell.get("r").rstrip("0123456789"): "".join(cell.itertext()) for cell in row} for row in rows]


def from_xlsx(content):
    _, *sheets = sheets_of(content)
    found = []
    for header, *rows in sheets:
        found += [{name: row.get(column, "") for column, name in header.items()} for row in rows]
    return found


def from_parquet(content):
    return pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()


@pytest.mark.parametrize("tenant", ["acme", "acme/sales", ""])
def test_the_files_agree_to_the_last_digit(october, client, reader, tenant):
    plain = from_csv(export(client, reader, "csv", tenant=tenant))
    sheet = from_xlsx(export(client, reader, "xlsx", tenant=tenant))
    table = from_parquet(export(client, reader, "parquet", tenant=tenant))
    assert len(plain) == len(sheet) == len(table) > 5
    for line, cells, values in zip(plain, sheet, table, strict=True):
        assert list(line) == list(COLUMNS) == list(values)
        for name, kind in COLUMNS.items():
            if kind == "text":
                assert cells[name] == values[name] == line[name].removeprefix("'")
            else:
                assert Decimal(line[name] or 0) == (values[name] or 0), name
                assert float(cells[name] or 0) == pytest.approx(float(line[name] or 0), rel=1e-15), name
        assert cells["cost_exact"] == line["cost"] == f"{values['cost']:.12f}"
    report = usage_report(SYSTEM, tenant or "acme", OCTOBER, UNTIL)
    assert round(sum(row["cost"] for row in table), 6) == report.total.cost
    assert sum(row["gpu_milliseconds"] for row in table) == report.total.gpu_milliseconds
    if tenant != "acme/sales":
        charged = sum(row["cost"] for row in table if row["is_correction"] == "false")
        assert charged == sum(segment.cost for segment in UsageSegment.objects.all())


def test_the_files_say_what_they_are_of(october, client, reader):
    content = export(client, reader, "xlsx", tenant="acme")
    about = {row["A"]: row["B"] for row in next(sheets_of(content))}
    assert (about["Tenant"], about["From"], about["Until"]) == ("acme", "2026-10-01 UTC", "2026-11-01 UTC")
    metadata = pyarrow.parquet.read_schema(io.BytesIO(export(client, reader, "parquet", tenant="acme"))).metadata
    assert metadata[b"Tenant"] == b"acme"
    for rows in (from_xlsx(content), from_csv(export(client, reader, "csv"))):
        assert {row["period_state"] for row in rows} == {"open"}
    assert AuditEntry.objects.filter(action="usage.export").count() == 3


def test_a_formula_is_text_in_every_file(october, client, reader):
    assert {row["job_name"] for row in from_csv(export(client, reader, "csv"))} == {"'=HYPERLINK(1)"}
    content = export(client, reader, "xlsx")
    assert {row["job_name"] for row in from_xlsx(content)} == {"=HYPERLINK(1)"}
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        assert b"<f>" not in book.read("xl/worksheets/sheet2.xml")


def test_rows_beyond_a_sheet_go_into_the_next(october, client, reader, monkeypatch):
    whole = from_xlsx(export(client, reader, "xlsx"))
    for rows in (len(whole), 3, 1):
        monkeypatch.setattr(usage_files, "SHEET_ROWS", rows)
        content = export(client, reader, "xlsx")
        assert from_xlsx(content) == whole
        assert len(list(sheets_of(content))) == 1 + -(-len(whole) // rows)


def test_a_month_without_usage_has_columns_and_no_rows(october, client, reader):
    assert export(client, reader, "csv", month="2020-01").decode().strip() == ",".join(COLUMNS)
    assert from_xlsx(export(client, reader, "xlsx", month="2020-01")) == []
    table = pyarrow.parquet.read_table(io.BytesIO(export(client, reader, "parquet", month="2020-01")))
    assert (table.column_names, table.num_rows) == (list(COLUMNS), 0)


def test_what_is_refused(october, client, reader, monkeypatch):
    def code(**query):
        response = client.get("/api/v1/exports/usage", query, headers=bearer(reader))
        problem = response.json()
        return response.status_code, (problem["errors"] or [problem])[0]["code"]

    assert code(format="xls") == (422, "unknown_format")
    assert code(month="2026-13") == (422, "not_a_month")
    assert code(tenant="lab")[0] == 404
    monkeypatch.setattr(usage_files, "has_parquet", lambda: False)
    assert code(format="parquet") == (422, "format_not_installed")


def test_one_organisations_reader_gets_nothing_of_another(october, client):
    record_runs(
        [
            make_run(
                priced_cluster("south", since=datetime(2026, 9, 1, tzinfo=UTC)), "lab", started_at=at(5), until_at=at(6)
            )
        ]
    )
    stranger = make_user()
    bind(stranger, "lab", "viewer")
    for kind, read in (("csv", from_csv), ("xlsx", from_xlsx), ("parquet", from_parquet)):
        assert {row["tenant"] for row in read(export(client, stranger, kind))} == {"lab"}
