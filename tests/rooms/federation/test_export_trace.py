"""The past as a trace: what has none, and what is refused. `test_seed_demo.py` exports and replays the demo's."""

import io

import pytest
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.django_db


def test_nothing_that_ran_is_a_trace_without_jobs(capsys):
    out = io.StringIO()
    call_command("export_trace", stdout=out)
    assert out.getvalue().startswith("job,submitted_at,seconds,pods,gpus,")
    assert capsys.readouterr().err == "0 jobs\n"


@pytest.mark.parametrize("days", ["0", "-3", "999999999"])
def test_days_are_bounded(days):
    with pytest.raises(CommandError, match="between 1 and") as caught:
        call_command("export_trace", "--days", days)
    assert caught.value.returncode == 2
