from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from foundation.clock import now
from foundation.models import Routine

pytestmark = pytest.mark.django_db


def told(*names):
    out = StringIO()
    call_command("check_routines", *names, stdout=out)
    return out.getvalue().splitlines()


def test_routines_that_ran_lately_or_never_are_well():
    Routine.objects.create(name="cycle", started_at=now() - timedelta(seconds=30))
    assert told("cycle", "sweep") == ["cycle: 30 s ago", "sweep: never ran"]


def test_a_silent_routine_is_named():
    Routine.objects.create(name="cycle", started_at=now() - timedelta(seconds=121))
    with pytest.raises(CommandError, match="silent: cycle"):
        told()


def test_an_unknown_routine_is_refused():
    with pytest.raises(CommandError, match="no such routine: tea"):
        told("tea")


def test_whoever_shows_that_it_is_at_work_is_not_silent():
    Routine.objects.create(name="dispatch", started_at=now() - timedelta(seconds=500), beat_at=now())
    assert told("dispatch") == ["dispatch: 0 s ago"]
