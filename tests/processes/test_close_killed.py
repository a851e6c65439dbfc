"""A process that is killed with SIGKILL in the middle of a close leaves the month closing; the next one closes it, once."""

from decimal import Decimal
from pathlib import Path

import pytest

from billing.models import LedgerPeriod, PeriodClose
from billing.operations import create_price, periods, posting, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run
from tests.rooms.billing.ledgers import SEPTEMBER, at

from .test_turns import BEAT, running, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]


def test_a_close_that_is_killed_after_it_wrote_and_before_it_committed_is_finished_by_the_next_process(
    home, tmp_path: Path
):
    north = make_cluster(name="north")
    make_flavor(north)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=SEPTEMBER))
    record_runs([make_run(north, started_at=at(5, 1), until_at=at(5, 2))])
    posting.post_days()
    october = LedgerPeriod.objects.get()
    periods.begin_closing(SYSTEM, october.id)
    flag = tmp_path / "period_closed"
    flag.touch()

    with running(home, *BEAT, SWITCHYARD_CRASH_FLAGS=str(tmp_path)) as beat:
        wait_for(lambda: beat.poll() is not None, "the process dies in the close")
    assert not flag.exists()
    assert LedgerPeriod.objects.get().state == "closing"
    assert not PeriodClose.objects.exists()

    with running(home, *BEAT, SWITCHYARD_CRASH_FLAGS=str(tmp_path)):
        wait_for(lambda: LedgerPeriod.objects.get().state == "closed", "the next process closes it")
    assert LedgerPeriod.objects.get().revision == PeriodClose.objects.count() == 1
    assert discrepancies() == ()
