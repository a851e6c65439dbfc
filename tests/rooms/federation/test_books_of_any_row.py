"""The proof of the books over rows that no constraint would let in."""

import pytest

from federation.operations import prove_books
from tests.kept_rows import written_once
from tests.rooms.federation.forging import loosen, write

pytestmark = pytest.mark.django_db

HOSTILE = {
    "UPDATE quotas_hold SET amounts = '{\"gpu\": 0.5}'": "amounts that are not whole numbers",
    'UPDATE quotas_hold SET amounts = \'{"gpu": "1e999", "cpu": null}\'': "amounts that are not whole numbers",
    "UPDATE quotas_hold SET amounts = '[1]'": "amounts that are not whole numbers",
    "UPDATE quotas_hold SET amounts = '{\"gpu\": 99999999999999999999999999}'": "",
    "UPDATE quotas_hold SET ended_at = '1970-01-01' WHERE state <> 'pending'": "and ended at 1970-01-01",
    "UPDATE quotas_hold SET created_at = '-infinity'": "began at -infinity",
    "UPDATE billing_meter SET metered_until = 'infinity'": "which are not valid times",
    "UPDATE billing_meter SET metered_from = '4000-01-01 BC'": "which are not valid times",
    "UPDATE billing_meter SET gpu_units = 2147483647, cpu_millicores = 9223372036854775807": "which does not match its meter",
    "UPDATE billing_usagesegment SET period = 'empty'": "not a valid period",
    "UPDATE billing_usagesegment SET period = tstzrange(NULL, NULL)": "not a valid period",
    "UPDATE federation_podrun SET started_at = 'infinity', finished_at = 'infinity'": "which its meters do not cover",
    "UPDATE federation_attempt SET finished_at = 'infinity', starting_at = '-infinity' WHERE settled_at IS NOT NULL": "ended at infinity",
    "UPDATE quotas_quotalimit SET held = 9223372036854775807, cap = 1": "more than its cap",
}


@pytest.fixture(scope="module")
def loosened(unguarded, django_db_blocker):
    """The ledger, without what would refuse such rows."""
    with written_once(django_db_blocker, _loosen) as found:
        yield found


def _loosen():
    for table, names in (
        ("quotas_hold", ("hold_amounts_are_whole", "hold_ends_after_it_began")),
        ("billing_usagesegment", (
            "segment_period_is_half_open", "segment_is_in_whole_milliseconds", "segment_lies_within_a_day",
            "segment_costs_only_with_a_price",
        )),
        ("billing_meter", ("meter_is_in_whole_milliseconds", "meter_never_runs_backwards")),
        ("quotas_quotalimit", ("quota_is_never_exceeded", "quota_surplus_cap_is_what_is_held")),
        ("federation_podrun", ("one_pod_at_a_time_has_a_place",)),
    ):  # fmt: skip
        for name in names:
            loosen(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    loosen("DROP INDEX each_moment_is_metered_once")


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(("row", "said"), HOSTILE.items())
def test_the_proof_survives_any_row_and_tells_it(loosened, row, said, full):
    write(row)
    told = "\n".join(prove_books(full=full).told)
    assert said in told
    assert "could not check" not in told
