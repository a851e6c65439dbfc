"""Faults in the order of a seed, for a minute and more, always the same (`make campaign` does it for longer)."""

import pytest

from benchmarks.campaign.running import Ground, Wish, carry_out
from tests.faults.proxy import Mischief
from tests.faults.stand import Stand

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(1800)]
WISH = Wish(seconds=80, seed=396, pace=2.0, rate=1.5, without=frozenset({"F11", "F12"}))
"""A schedule in which each fault finds something to break. Other tests start second sets of processes, which takes as long as this."""


def test_whatever_breaks_in_whatever_order_nothing_is_lost_run_twice_ended_falsely_or_misbilled(
    stand: Stand, mischief: Mischief, skews
):
    outcome = carry_out(Ground(stand, mischief, skews), WISH)
    assert outcome.jobs
    assert outcome.findings == []
