"""Grid intensities and the other numbers of energy, imported over HTTP, and in files of usage."""

import csv
import io
import json
from decimal import Decimal

import pytest

from billing.models import GridIntensity
from billing.operations import record_runs
from billing.queries import usage_report
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_run, make_user

from .emitting import INTENSITIES, SITES, counted
from .ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db
FILE = {"organisation": "acme", "file": INTENSITIES}
ORIGIN = {"source": "RTE éCO2mix", "licence": "Etalab 2.0"}


@pytest.fixture
def north():
    return priced_cluster()


def person(role, path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def post(client, user, what, body):
    text = body if isinstance(body, str) else json.dumps(body)
    return client.post(f"/api/v1/carbon/{what}", text, "application/json", headers=bearer(user))


def test_finance_plans_and_imports_intensities(north, client):
    teller = person("finance")
    plan = post(client, teller, "plan", FILE).json()
    assert (plan["kind"], plan["added"], plan["corrected"], plan["known"]) == ("intensities", 3, 0, 0)
    assert plan["changes"][1] == {"of": "FR 2026-10-05T10:00Z 2026-10-05T11:00Z", "after": ["30000"], "before": None}
    assert not GridIntensity.objects.exists()
    wrong = post(client, teller, "apply", {**FILE, **ORIGIN, "expect": "0" * 64})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "carbon_changed")
    done = post(client, teller, "apply", {**FILE, **ORIGIN, "expect": plan["hash"]})
    assert (done.status_code, done.json()) == (200, plan)
    row = GridIntensity.objects.get(milligrams_per_kwh=30_000)
    assert (row.organisation.path, row.source, row.licence, row.made_by_name) == (
        "acme",
        "RTE éCO2mix",
        "Etalab 2.0",
        str(teller),
    )
    assert AuditEntry.objects.filter(action="carbon.import").count() == 1
    again = post(client, teller, "apply", {**FILE, **ORIGIN}).json()
    assert (again["added"], again["known"]) == (0, 3)
    other = {**FILE, "file": INTENSITIES.replace(",50", ",51")}
    refused = post(client, teller, "apply", {**other, **ORIGIN})
    assert (refused.status_code, refused.json()["code"]) == (409, "carbon_differs")
    corrected = post(client, teller, "apply", {**other, **ORIGIN, "corrects": True}).json()
    assert (corrected["corrected"], corrected["changes"][0]["before"]) == (1, ["50000"])


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"file": INTENSITIES}, "organisation", "required"),
        ({**FILE, "organisation": ""}, "organisation", "blank"),
        ({**FILE, "file": ""}, "file", "bad_format"),
        ({**FILE, "file": 7}, "file", "invalid"),
        ({**FILE, "file": INTENSITIES + "FR,x,,1\n"}, "file", "bad_format"),
        ({**FILE, "file": SITES.replace("north", "nowhere")}, "file", "unknown_cluster"),
        ({**FILE, "file": "cluster,pod,hour,watt_hours\nnorth,p,2026-10-05T10:00Z,5\n"}, "file", "unknown_pod"),
        (FILE, "licence", "required"),
        ({**FILE, "source": "  "}, "source", "bad_format"),
        ({**FILE, **ORIGIN, "more": 1}, "more", "unknown_field"),
    ],
)
def test_a_wrong_import_says_where(north, client, body, field, code):
    shown = post(client, person("finance"), "apply", {"source": "x", **body}).json()
    assert [(one["field"], one["code"]) for one in shown["errors"]] == [(field, code)]
    assert not GridIntensity.objects.exists()


def test_only_those_who_may_close_months_of_the_organisation_import(north, client):
    assert post(client, person("viewer"), "apply", {**FILE, **ORIGIN}).status_code == 403
    assert post(client, person("finance", "acme/one"), "apply", {**FILE, **ORIGIN}).status_code in {403, 404}
    assert post(client, person("finance", "other"), "apply", {**FILE, **ORIGIN}).status_code == 404
    assert client.post("/api/v1/carbon/apply", "{}", "application/json").status_code == 401
    assert not GridIntensity.objects.exists()


def test_files_of_usage_have_the_energy_and_emissions_of_the_report(north, client):
    counted()
    record_runs([
        make_run(north, "acme/one", started_at=at(5, 9), until_at=at(5, 12), gpu_model="H100", memory_mib=10240),
        make_run(north, "acme/two", started_at=at(6, 9), until_at=at(6, 10), gpu_model="B200"),
    ])  # fmt: skip
    content = client.get(
        "/api/v1/exports/usage", {"month": "2026-10", "tenant": "acme"}, headers=bearer(person("finance"))
    )
    rows = list(csv.DictReader(io.StringIO(b"".join(content.streaming_content).decode())))
    whole = usage_report(SYSTEM, "acme", at(1), at(1, month=11), with_carbon=True).total.carbon
    for name in ("energy_kwh", "emissions_g", "embodied_emissions_g", "energy_without_intensity_kwh"):
        assert round(sum(Decimal(row[name] or 0) for row in rows), 6) == getattr(whole, name), name
    by_tenant = {row["tenant"]: row for row in rows}
    assert by_tenant["acme/one"]["energy_basis"] == "estimated"
    assert Decimal(by_tenant["acme/one"]["emissions_g"]) > 0
    # Its GPU has no rating; what its cores used is known.
    assert by_tenant["acme/two"]["energy_kwh"] == "0.007200000000"
