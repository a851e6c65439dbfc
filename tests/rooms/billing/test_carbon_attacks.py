"""Raw SQL against what energy and emissions are computed from, as the role that the processes run as."""

import pytest

from billing.operations import record_runs
from tests.builders import make_run
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import NO_RIGHT, refusal_of

from .emitting import MEASURED, counted, imported
from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
TABLES = ("gridintensity", "powerrating", "carbonsite", "measuredenergy")
INTENSITY = (
    "INSERT INTO billing_gridintensity (organisation_id, region, valid_from, valid_until, milligrams_per_kwh, source, licence,"
    " made_by_name) SELECT id, {} FROM tenancy_tenant WHERE path = '{}'"
)
RATING = (
    "INSERT INTO billing_powerrating (part, gpu_model, since, milliwatts, embodied_grams, life_hours, source, made_by_name)"
    " VALUES ({})"
)
SITE = "INSERT INTO billing_carbonsite (cluster_id, since, region, pue_thousandths, source, made_by_name) SELECT id, {} FROM clusters_cluster"
ENERGY = "INSERT INTO billing_measuredenergy (meter_id, hour, milliwatt_hours, source, made_by_name) SELECT id, {} FROM billing_meter"
ATTACKS = {
    **{f"{table} rewritten": (f"UPDATE billing_{table} SET source = 'me'", NO_RIGHT) for table in TABLES},
    **{f"{table} struck out": (f"DELETE FROM billing_{table}", NO_RIGHT) for table in TABLES},
    "intensity of half an hour": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T00:30Z', 1, 'x', 'x', 'x'", "acme"), "carbon_counts_by_whole_hours",
    ),
    "intensity from within an hour": (
        INTENSITY.format("'FR', '2026-10-01T00:00:00.001Z', '2026-10-01T02:00Z', 1, 'x', 'x', 'x'", "acme"), "carbon_counts_by_whole_hours",
    ),
    "intensity of no time": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T00:00Z', 1, 'x', 'x', 'x'", "acme"), "grid_intensity_has_hours",
    ),
    "intensity that is negative": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T01:00Z', -1, 'x', 'x', 'x'", "acme"),
        "billing_gridintensity_milligrams_per_kwh_check",
    ),
    "intensity of ten kilograms and more": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T01:00Z', 10000001, 'x', 'x', 'x'", "acme"),
        "grid_intensity_is_within_bounds",
    ),
    "intensity without a licence": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T01:00Z', 1, 'x', '', 'x'", "acme"),
        "grid_intensity_has_source_and_licence",
    ),
    "intensity of a team": (
        INTENSITY.format("'FR', '2026-10-01T00:00Z', '2026-10-01T01:00Z', 1, 'x', 'x', 'x'", "acme/one"), "carbon_is_of_an_organisation",
    ),
    "rating of no model": (RATING.format("'gpu', '', '2026-10-01T00:00Z', 1, NULL, NULL, 'x', 'x'"), "power_rating_is_of_a_part"),
    "rating of a node": (RATING.format("'node', '', '2026-10-01T00:00Z', 1, NULL, NULL, 'x', 'x'"), "power_rating_is_of_a_part"),
    "rating beyond bounds": (
        RATING.format("'core', '', '2026-10-01T00:00Z', 100000001, NULL, NULL, 'x', 'x'"), "power_is_within_bounds",
    ),
    "rating within an hour": (
        RATING.format("'core', '', '2026-10-01T00:10Z', 1, NULL, NULL, 'x', 'x'"), "carbon_counts_by_whole_hours",
    ),
    "embodied without a life": (
        RATING.format("'core', '', '2026-10-01T00:00Z', 1, 5, NULL, 'x', 'x'"), "embodied_emissions_have_a_life",
    ),
    "embodied with no life": (RATING.format("'core', '', '2026-10-01T00:00Z', 1, 5, 0, 'x', 'x'"), "embodied_emissions_have_a_life"),
    "rating from nowhere": (RATING.format("'core', '', '2026-10-01T00:00Z', 1, NULL, NULL, '', 'x'"), "power_rating_has_a_source"),
    "site better than perfect": (SITE.format("'2026-10-01T00:00Z', 'FR', 999, 'x', 'x'"), "pue_is_within_bounds"),
    "site nowhere": (SITE.format("'2026-10-01T00:00Z', '', 1000, 'x', 'x'"), "carbon_site_has_region_and_source"),
    "site within an hour": (SITE.format("'2026-10-01T00:00:01Z', 'FR', 1000, 'x', 'x'"), "carbon_counts_by_whole_hours"),
    "energy before the pod": (ENERGY.format("'2026-10-05T09:00Z', 1, 'x', 'x'"), "measured_hour_is_metered"),
    "energy after the pod": (ENERGY.format("'2026-10-05T12:00Z', 1, 'x', 'x'"), "measured_hour_is_metered"),
    "energy of an hour that runs": (ENERGY.format("'2026-10-05T11:00Z', 1, 'x', 'x'"), "measured_hour_is_metered"),
    "energy within an hour": (ENERGY.format("'2026-10-05T10:30Z', 1, 'x', 'x'"), "carbon_counts_by_whole_hours"),
    "energy of a power station": (ENERGY.format("'2026-10-05T10:00Z', 1000000001, 'x', 'x'"), "measured_energy_is_within_bounds"),
    "energy from nowhere": (ENERGY.format("'2026-10-05T10:00Z', 1, '', 'x'"), "measured_energy_has_a_source"),
}  # fmt: skip


@pytest.fixture(scope="module")
def known(processes_role, django_db_setup, django_db_blocker):
    """A row of each kind, and a pod that runs since 10 and is metered until half past 11."""
    with written_once(django_db_blocker, _known) as found:
        yield found


def _known():
    cluster = priced_cluster()
    counted()
    until = at(5, 11).replace(minute=30)
    run = make_run(cluster, "acme/one", started_at=at(5, 10), until_at=until, is_final=False)
    record_runs([run])
    imported(f"{MEASURED}north,{run.source_uid},2026-10-05T10:00Z,1")
    settle_pending_checks()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_database_refuses_the_processes_role(known, db, name):
    statement, constraint = ATTACKS[name]
    with as_processes():
        assert refusal_of(statement) == constraint


@pytest.mark.parametrize("table", TABLES)
def test_the_owner_himself_is_refused_to_rewrite_it(known, db, table):
    for statement in (
        f"UPDATE billing_{table} SET source = 'x'", f"DELETE FROM billing_{table}", f"TRUNCATE billing_{table} CASCADE",
    ):  # fmt: skip
        assert refusal_of(statement) == "ledger_is_append_only"
