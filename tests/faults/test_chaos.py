"""Every fault in a random order, for a minute and more, always from the same seed (`make chaos` does it for longer)."""

from pathlib import Path

import pytest

from tests.faults.chaos import unleash
from tests.faults.proxy import Mischief
from tests.faults.stand import Stand

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(1800)]
SECONDS = 45
SEED = 20261122


def test_whatever_breaks_in_whatever_order_nothing_is_lost_run_twice_ended_falsely_or_misbilled(
    stand: Stand, mischief: Mischief, skews: Path
):
    outcome = unleash(stand, mischief, skews, seconds=SECONDS, seed=SEED)
    assert outcome.jobs
    assert outcome.is_clean, outcome
    stand.gateway.manage("prove_ledger")
    stand.gateway.manage("verify_audit")
