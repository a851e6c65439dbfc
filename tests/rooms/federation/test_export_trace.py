"""The past as a trace: exported from the demo's day, and played again."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from federation.models import Attempt, Job
from federation.queries.history import past_jobs
from foundation import clock
from simulator.traces import read_trace

pytestmark = pytest.mark.django_db
FLEET = """
clusters:
  - name: all
    nodes:
      - {name: g, count: 40, model: any, gpus: 8, cpu: 512, memory_gib: 4096}
      - {name: c, count: 20, cpu: 512, memory_gib: 4096}
"""


@pytest.fixture
def _a_week_of_work(settings, tmp_path):
    settings.HOME = tmp_path / "home"
    settings.HOME.mkdir()
    call_command("seed_demo", "--json", "--days=6", stdout=io.StringIO())


@pytest.mark.usefixtures("_a_week_of_work")
def test_what_ran_comes_back_as_a_trace_that_can_be_replayed(tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    call_command("export_trace", "--days", "8", "--out", str(path))
    told = capsys.readouterr().err
    jobs = read_trace("jobs", path.read_text())
    ran = Job.objects.filter(finished_at__isnull=False, attempts__started_at__isnull=False).distinct()
    _, untold = past_jobs(clock.now() - timedelta(days=8), clock.now())
    assert len(jobs) + untold == ran.count() > 100
    assert told.startswith(f"{len(jobs)} jobs")
    one = jobs[0]
    attempt = Attempt.objects.filter(job_id=one.name, finished_at__isnull=False).latest("number")
    assert one.seconds == round((attempt.finished_at - attempt.started_at).total_seconds(), 3)
    assert one.tenant == attempt.job.tenant.path
    assert attempt.job.name not in path.read_text().replace(one.tenant, "")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    plain = path.read_text()
    for model in {model for job in jobs for model in job.models}:
        plain = plain.replace(model, "any")
    path.write_text(plain)
    out = io.StringIO()
    call_command("replay", "--fleet", str(tmp_path / "fleet.yaml"), "--trace", str(path), "--quiet", stdout=out)
    assert f"{len(jobs)} ({len(jobs)})" in out.getvalue()


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
