"""A run that hangs on the host's own clock ends, and names who did not go on."""

import signal
import time
from types import SimpleNamespace

import pytest

from devtools.simulation.core import alarm
from devtools.simulation.core.actors import Policy, Stalled
from devtools.simulation.core.scheduler import Scheduler


@pytest.fixture
def scheduler():
    return Scheduler(1, SimpleNamespace(), Policy(), 0)


def test_a_run_that_makes_no_step_ends_with_who_ran_and_who_waited(scheduler, monkeypatch):
    monkeypatch.setattr(alarm, "LONGEST_SECONDS", 0.1)
    with pytest.raises(Stalled, match="after step 0, nobody runs; nobody waits for a lock"), alarm.alarm(7, scheduler):
        time.sleep(20)
    assert isinstance(scheduler.ended, Stalled), "no actor goes on, whatever becomes of the exception"


def test_a_run_that_makes_steps_may_take_its_time(scheduler, monkeypatch):
    monkeypatch.setattr(alarm, "LONGEST_SECONDS", 0.05)
    with alarm.alarm(7, scheduler):
        for _ in range(10):
            scheduler.steps += 1
            time.sleep(0.02)
    assert scheduler.ended is None


def test_a_run_that_ends_in_time_leaves_no_alarm_behind(scheduler):
    before = signal.getsignal(signal.SIGALRM)
    with alarm.alarm(7, scheduler):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before
