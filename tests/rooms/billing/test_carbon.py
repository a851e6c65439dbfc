"""Energy and emissions of usage: imports, the report in all its forms, and who sees what."""

import csv
import io
import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.core.management import CommandError, call_command

from billing.engine.focus import rows as focus_rows
from billing.models import CarbonSite, GridIntensity, MeasuredEnergy, Meter
from billing.operations import record_runs
from billing.operations.carbon import Origin, apply_carbon, plan_carbon
from billing.queries import usage_report
from billing.queries.focus_ledger import accounts_in, billed_in
from foundation.problems import Conflict, Invalid, NotFound, Problem
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, NotAllowedHere, actor_for
from tests.builders import bearer, bind, make_run, make_tenant, make_user

from .emitting import INTENSITIES, MEASURED, RATINGS, SITES, counted, imported
from .ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db
OCTOBER = (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
FIGURES = (
    "energy_kwh", "measured_energy_kwh", "energy_without_intensity_kwh", "emissions_g", "measured_emissions_g",
    "embodied_emissions_g", "unrated_gpu_hours", "unrated_core_hours",
)  # fmt: skip
GPU = {"gpu_model": "H100", "memory_mib": 10240}


@pytest.fixture
def north():
    return priced_cluster()


def metered(cluster, start, until, path="acme/one", **more):
    """A pod that was metered in [start, until)."""
    run = make_run(cluster, path, started_at=start, until_at=until, **(GPU | more))
    record_runs([run])
    return run


def carbon(path="acme", span=OCTOBER, words=(), **more):
    return usage_report(SYSTEM, path, span[0], span[1], words, with_carbon=True, **more)


def test_an_hour_has_the_energy_of_its_rated_parts_and_the_emissions_of_its_grid(north):
    counted()
    metered(north, at(5, 10), at(5, 12), gpu_units=2)
    one = carbon().total.carbon
    watts = 2 * 700 + 2 * 3 + 10 * Decimal("0.4")
    assert one.energy_kwh == 2 * watts * Decimal("1.2") / 1000
    assert one.emissions_g == watts * Decimal("1.2") / 1000 * (30 + Decimal("70.5"))
    assert one.embodied_emissions_g == 2 * 2 * 3
    assert one.basis == "estimated"
    assert not any((one.measured_energy_kwh, one.energy_without_intensity_kwh, one.unrated_gpu_hours))
    assert usage_report(SYSTEM, "acme", *OCTOBER).total.carbon is None


def test_nothing_known_is_no_figure_and_says_so(north):
    metered(north, at(5, 10), at(5, 12), gpu_units=2)
    metered(north, at(5, 10), at(5, 12), gpu_units=0)
    one = carbon().total.carbon
    assert (one.basis, one.energy_kwh, one.unrated_gpu_hours, one.unrated_core_hours) == ("none", 0, 4, 4)
    imported(RATINGS)
    assert carbon().total.carbon.unrated_gpu_hours == 4, "without its site, the PUE is not known"
    imported(SITES)
    dark = carbon().total.carbon
    assert dark.energy_without_intensity_kwh == dark.energy_kwh > 0
    assert (dark.emissions_g, dark.unrated_gpu_hours, dark.unrated_core_hours) == (0, 0, 0)


@pytest.fixture
def october(north):
    """Odd lengths on parts of GPUs, some measured, in two teams and two clusters, one of which has no site."""
    south = priced_cluster("south")
    counted()
    runs = []
    for number in range(18):
        start = datetime(2026, 9, 30, 20, 17, 3, tzinfo=UTC) + timedelta(hours=31 * number, milliseconds=number)
        runs.append(
            metered(
                north if number % 3 else south,
                start,
                start + timedelta(hours=5, milliseconds=7919 * number),
                f"acme/{('one', 'two')[number % 2]}",
                gpu_units=number % 4,
                user_name=f"=u{number % 5}",
                gpu_model="" if number == 7 else "H100",
                sharing="mig:1g.10gb" if number % 4 == 3 else "whole",
            )
        )
    full = [(run, run.started_at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)) for run in runs]
    rows = [f"{'north' if run.cluster_id == north.id else 'south'},{run.source_uid},{hour:%Y-%m-%dT%H:00Z},{400 + n}.25"
            for n, (run, hour) in enumerate(full) if n % 4 == 1]  # fmt: skip
    imported(MEASURED + "\n".join(rows))
    return runs


@pytest.mark.parametrize("words", ["", "tenant", "cluster", "user", "job", "day", "month", "tenant,flavor,job,day"])
def test_json_and_csv_agree_and_totals_equal_their_parts(october, client, words):
    reader = make_user()
    bind(reader, "acme", "viewer")
    query = {"tenant": "acme", "month": "2026-10", "group_by": words, "carbon": "true"}
    shown = client.get("/api/v1/usage", query, headers=bearer(reader)).json()
    whole = carbon().total.carbon
    assert shown["totals"]["carbon"] == {"basis": "mixed"} | {name: f"{getattr(whole, name):f}" for name in FIGURES}
    assert all(
        Decimal(shown["totals"]["carbon"][name]) > 0 for name in FIGURES if name != "energy_without_intensity_kwh"
    )
    for name in FIGURES:
        parts = [Decimal(item["carbon"][name]) for item in shown["items"]]
        assert sum(parts) == Decimal(shown["totals"]["carbon"][name])
    sheet = client.get("/api/v1/usage", {**query, "format": "csv"}, headers=bearer(reader)).content.decode()
    read = list(csv.DictReader(io.StringIO(sheet, newline="")))
    assert [[row["carbon_basis"], *(row[name] for name in FIGURES)] for row in read] == [
        [item["carbon"]["basis"], *(item["carbon"][name] for name in FIGURES)] for item in shown["items"]
    ]


def test_the_page_shows_no_zero_where_nothing_is_known(north, client):
    metered(north, at(5, 10), at(5, 12), gpu_units=2)
    reader = make_user()
    bind(reader, "acme", "viewer")
    client.force_login(reader)
    query = {"month": "2026-10", "group_by": "tenant", "carbon": "yes"}
    page = client.get("/usage/", query).content.decode()
    assert "The energy and emissions of this use are not known" in page
    assert page.count("not known</span>") == 6  # energy, emissions and embodied, of the row and in total
    counted()
    page = client.get("/usage/", query).content.decode()
    assert "not known" not in page
    assert "kWh measured and the rest estimated" in page


def test_focus_has_the_same_energy_as_the_report(october):
    whole = carbon(words=["job"])
    columns = {
        "x_EnergyKwh": "energy_kwh", "x_MeasuredEnergyKwh": "measured_energy_kwh", "x_EmissionsGramsCo2e": "emissions_g",
        "x_MeasuredEmissionsGramsCo2e": "measured_emissions_g", "x_EmbodiedGramsCo2e": "embodied_emissions_g",
    }  # fmt: skip
    accounts = accounts_in(SYSTEM, "acme", date(2026, 10, 1))
    sums = dict.fromkeys(columns, Fraction())
    bases = set()
    for charge in billed_in(accounts, "acme", date(2026, 10, 1)):
        for row in focus_rows(charge, "1.4"):
            bases.add(row.get("x_EnergyBasis"))
            for name in columns:
                sums[name] += Fraction(row.get(name, "0"))
    assert bases == {None, "none", "estimated", "mixed"}, "none: only embodied emissions, on a cluster without a site"
    for name, of in columns.items():
        assert abs(sums[name] - Fraction(getattr(whole.total.carbon, of))) < Fraction(1, 10**6), name


def test_reports_of_adjoining_periods_add_up_wherever_they_are_cut(october):
    whole = carbon().total.carbon
    cuts = [
        OCTOBER[0],
        *(OCTOBER[0] + timedelta(hours=53 * n, milliseconds=1234 * n) for n in range(1, 14)),
        OCTOBER[1],
    ]
    parts = [carbon(span=span).total.carbon for span in itertools.pairwise(cuts)]
    for name in FIGURES:
        together = sum(getattr(part, name) for part in parts)
        assert abs(together - getattr(whole, name)) <= Decimal("0.000001") * len(parts), name


def test_usage_that_is_recorded_late_and_numbers_that_are_corrected_follow(north):
    counted()
    run = metered(north, at(5, 10), at(5, 11), is_final=False, gpu_units=1)
    record_runs([make_run(north, "acme/one", **(GPU | {
        "source_uid": run.source_uid, "started_at": at(5, 10), "until_at": at(5, 12), "workload_id": run.workload_id,
        "run_id": run.run_id, "user_id": run.user_id}))])  # fmt: skip
    assert carbon().total.carbon.embodied_emissions_g == 6
    before = carbon().total.carbon
    imported(INTENSITIES.replace(",70.5", ",141"), corrects=True)
    assert carbon().total.carbon.energy_kwh == before.energy_kwh
    assert carbon().total.carbon.emissions_g > before.emissions_g
    late = metered(north, at(3, 10), at(3, 11))
    assert carbon(words=["job"]).rows[-1].carbon.embodied_emissions_g in {3, 6}
    assert carbon().total.carbon.embodied_emissions_g == 9, late


def test_a_measurement_replaces_the_estimate_of_its_hour_and_a_later_one_replaces_it(north):
    counted()
    run = metered(north, at(5, 10, 10) + timedelta(minutes=30), at(5, 13, 10), gpu_units=1)
    estimated = carbon().total.carbon
    row = f"north,{run.source_uid},2026-10-05T10:00Z,"
    imported(MEASURED + row + "100")
    one = carbon().total.carbon
    assert (one.basis, one.measured_energy_kwh) == ("mixed", Decimal("0.12"))
    assert one.measured_emissions_g == Decimal("3.6")
    half = Decimal("0.5") * (700 + 6 + 4) * Decimal("1.2") / 1000
    assert one.energy_kwh == estimated.energy_kwh - half + Decimal("0.12")
    with pytest.raises(Conflict, match=r"1 rows differ from what applies, such as north .*\(200000,\) and \(100000,\)"):
        imported(MEASURED + row + "200")
    imported(MEASURED + row + "200", corrects=True)
    assert carbon().total.carbon.measured_energy_kwh == Decimal("0.24")
    assert MeasuredEnergy.objects.count() == 2
    assert carbon(words=["day"]).rows[0].carbon == carbon().total.carbon


def test_an_hour_that_is_not_metered_is_not_measured(north):
    run = metered(north, at(5, 10), at(5, 11, 10) + timedelta(minutes=30), is_final=False)
    for uid, hour, code in (
        (run.source_uid, 11, "not_metered"), (run.source_uid, 9, "not_metered"), (run.source_uid, 13, "not_metered"),
        ("unknown", 10, "unknown_pod"),
    ):  # fmt: skip
        with pytest.raises(Invalid) as refused:
            imported(f"{MEASURED}north,{uid},2026-10-05T{hour:02}:00Z,1")
        assert refused.value.errors[0].code == code
    imported(f"{MEASURED}north,{run.source_uid},2026-10-05T10:00Z,1")
    assert Meter.objects.get().is_closed is False


def test_a_plan_writes_nothing_and_only_the_expected_plan_is_applied():
    priced_cluster()
    plan = plan_carbon(SYSTEM, "acme", INTENSITIES)
    assert (plan.kind, len(plan.changes), plan.corrections, plan.known) == ("intensities", 3, (), 0)
    assert not GridIntensity.objects.exists()
    with pytest.raises(Conflict, match="plan again"):
        imported(INTENSITIES, expected="0" * 64)
    imported(INTENSITIES, expected=plan.digest)
    again = imported(INTENSITIES)
    assert (again.changes, again.known, GridIntensity.objects.count()) == ((), 3, 3)
    assert again.digest != plan.digest
    entry = AuditEntry.objects.get(action="carbon.import")
    assert entry.detail == {
        "kind": "intensities", "added": 3, "corrected": 0, "source": "RTE éCO2mix", "licence": "Etalab 2.0",
    }  # fmt: skip


def test_what_is_for_all_is_the_platforms_and_an_organisations_own_comes_first(north):
    imported(RATINGS, path="")
    imported(INTENSITIES, path="")
    imported(SITES)
    metered(north, at(5, 10), at(5, 12))
    general = carbon().total.carbon
    assert general.emissions_g > 0
    imported(RATINGS.replace(",700,", ",350,"))
    assert carbon().total.carbon.energy_kwh < general.energy_kwh
    make_tenant("other")
    imported(RATINGS.replace(",700,", ",1,"), path="other")
    assert carbon().total.carbon.embodied_emissions_g == general.embodied_emissions_g
    for text in (SITES, f"{MEASURED}north,x,2026-10-05,1"):
        with pytest.raises(Invalid) as refused:
            imported(text, path="")
        assert refused.value.errors[0].field == "organisation"


def test_only_those_who_may_close_an_organisations_months_import_for_it():
    priced_cluster()
    make_tenant("other")
    finance, viewer = make_user(), make_user()
    bind(finance, "acme", "finance")
    bind(viewer, "acme", "viewer")
    origin = Origin("x", "y")
    apply_carbon(actor_for(finance), "acme", SITES, origin)
    for user, path, problem in (
        (viewer, "acme", NotAllowedHere), (finance, "other", NotFound), (finance, "", NotFound), (viewer, "", NotFound),
        (finance, "acme\x00", NotFound),
    ):  # fmt: skip
        with pytest.raises(problem):
            apply_carbon(actor_for(user), path, INTENSITIES, origin)
        with pytest.raises(problem):
            plan_carbon(actor_for(user), path, INTENSITIES)
    with pytest.raises(Invalid, match="south"):
        imported(SITES.replace("north", "south"))
    for wrong in (
        Origin("", "x"),
        Origin("x" * 201, "x"),
        Origin("a\nb", "x"),
        Origin("x", ""),
        Origin("x", "y" * 121),
    ):
        with pytest.raises(Problem):
            apply_carbon(SYSTEM, "acme", INTENSITIES, wrong)
    assert not GridIntensity.objects.exists()
    assert CarbonSite.objects.get().source == "x"


def test_running_work_has_energy_up_to_where_it_was_observed(north, monkeypatch):
    counted()
    run = make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14), is_final=False, **GPU)
    monkeypatch.setattr("billing.queries.progress.run_sources", [lambda *_: [run]])
    assert carbon(words=["tenant", "day"]).rows[0].carbon.embodied_emissions_g == 12
    record_runs([make_run(north, "acme/one", **(GPU | {
        "source_uid": run.source_uid, "started_at": at(5, 10), "until_at": at(5, 12), "workload_id": run.workload_id,
        "run_id": run.run_id, "user_id": run.user_id, "is_final": False}))])  # fmt: skip
    for words in ([], ["job", "day"], ["month"]):
        assert carbon(words=words).total.carbon.embodied_emissions_g == 12
        assert carbon(span=(at(5, 11), at(5, 13)), words=words).total.carbon.embodied_emissions_g == 6


def test_the_page_shows_energy_only_if_it_is_asked_and_there_is_any(north, client):
    user = make_user()
    bind(user, "acme", "viewer")
    client.force_login(user)
    metered(north, at(5, 10), at(5, 12), gpu_units=2)
    address = "/usage/?month=2026-10&group_by=job"
    assert "energy and emissions" not in client.get(address).content.decode()
    counted()
    assert "Energy, kWh" not in client.get(address).content.decode()
    page = client.get(f"{address}&carbon=yes").content.decode()
    assert "Energy: 3.38 kWh, of which 0.00 kWh measured and the rest estimated from rated power." in page
    assert "0.17 kg CO₂e of the grid, and 0.01 kg embodied" in page
    assert "estimated</span>" in page
    assert "carbon=true" in page
    assert (
        client.get("/api/v1/usage", {"carbon": "maybe"}, headers=bearer(user)).json()["errors"][0]["field"] == "carbon"
    )


def test_the_command_plans_and_applies(tmp_path, capsys):
    priced_cluster()
    file = tmp_path / "fr.csv"
    file.write_text(INTENSITIES)
    call_command("carbon", "plan", str(file))
    planned = capsys.readouterr().out
    assert "+ FR 2026-10-05T10:00Z 2026-10-05T11:00Z: 30000" in planned
    assert "intensities: 3 added, 0 corrected, 0 known." in planned
    digest = planned.split("Hash: ")[1].strip()
    with pytest.raises(CommandError, match="licence: say under which licence"):
        call_command("carbon", "apply", str(file), "--source", "RTE")
    call_command("carbon", "apply", str(file), "--source", "RTE", "--licence", "Etalab 2.0", "--expect", digest)
    file.write_text(INTENSITIES.replace(",30", ",31"))
    with pytest.raises(CommandError, match="1 rows differ"):
        call_command("carbon", "apply", str(file), "--source", "RTE", "--licence", "Etalab 2.0")
    call_command("carbon", "apply", str(file), "--source", "RTE", "--licence", "Etalab 2.0", "--corrects")
    assert "~ FR 2026-10-05T10:00Z 2026-10-05T11:00Z: 31000, before 30000" in capsys.readouterr().out
    with pytest.raises(CommandError, match="file: line 1"):
        call_command("carbon", "plan", str(tmp_path / "fr.csv"), "--organisation", "acme") if file.write_text(
            "a"
        ) else None
    with pytest.raises(CommandError, match="No such file"):
        call_command("carbon", "plan", str(tmp_path / "none"))
