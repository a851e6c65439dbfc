"""Policy hooks in Python: packages on the path that name a function in the group `switchyard.policies`."""

import json
import logging
import sys
from importlib.metadata import entry_points

import pytest

from federation.drivers import policy_hooks
from federation.engine.intake.policy_hooks import PolicyRefused, PolicyUnavailable
from federation.models import Job, JobEvent
from federation.operations import submit_job, submit_jobs
from foundation.caches import reset_all
from foundation.problems import Invalid
from tenancy.models import AuditEntry
from tenancy.queries import actor_for
from tests.builders import bind, make_spec, make_tenant, make_user

TENANT = "acme/research"
NAMES = ("acme_rules", "more_rules")


@pytest.fixture
def actor():
    user = make_user("ada@example.com")
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    return actor_for(user)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs packages whose `review` has this body; the entry points are found in the order of their names."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(policy_hooks, "entry_points", entry_points)  # searches again for each of these tests

    def install(*bodies):
        for name, body in zip(NAMES, bodies, strict=False):
            lines = "".join(f"    {line}\n" for line in body.splitlines())
            head = "from federation.engine.intake.policy_hooks import PolicyRefused\nseen = []\n\n\n"
            (tmp_path / f"{name}.py").write_text(
                f"{head}def review(spec, asker):\n    seen.append((spec, asker))\n{lines}"
            )
            about = tmp_path / f"{name}-1.0.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (about / "entry_points.txt").write_text(f"[switchyard.policies]\n{name} = {name}:review\n")
        reset_all()

    yield install
    for name in NAMES:
        sys.modules.pop(name, None)


def submit(actor, *, key="", **changes):
    body = {"tenant": TENANT, **make_spec(**changes)}
    return submit_job(actor, body, show=lambda job: {"id": str(job.id)}, key=key, raw=json.dumps(body).encode())


@pytest.mark.django_db
def test_each_sees_what_the_one_before_changed(actor, install):
    install("spec['labels']['centre'] = '1'\nreturn spec", "spec['labels']['centre'] += '2'\nreturn spec")
    submit(actor)
    job = Job.objects.get()
    assert job.labels == {"centre": "12"}
    asker = {"tenant": TENANT, "user": "ada@example.com", "request_id": "", "dry_run": False}
    assert sys.modules["acme_rules"].seen[0][1] == asker
    assert JobEvent.objects.get().message.endswith(" The policy hook changed labels.")
    assert AuditEntry.objects.get(action="job.submit").detail == {"name": "train", "policy_changed": ["labels"]}


@pytest.mark.django_db
def test_it_refuses_and_those_after_it_are_not_asked(actor, install):
    install("raise PolicyRefused('No\\n' + 'x' * 400)", "raise RuntimeError")
    with pytest.raises(PolicyRefused) as refused:
        submit(actor)
    assert refused.value.detail == ("No " + "x" * 400)[:300]
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_what_it_leaves_out_takes_its_default(actor, install):
    install("pods = list(spec['pod_sets'])\nspec['pod_sets'].clear()\nreturn {'name': 'other', 'pod_sets': pods}")
    submit(actor, priority_class="high")
    job = Job.objects.get()
    assert (job.name, job.priority, len(job.spec["pod_sets"])) == ("other", 0, 1)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return None", "answered with NoneType"),
        ("return [spec]", "answered with list"),
        ("return {**spec, 'tenant': 'acme/other'}", "tenant unknown_field"),
        ("return {**spec, 'pod_sets': [{'name': 'a'}]}", "pod_sets[0].image required"),
        ("return {**spec, 'labels': {'a': object()}}", "raised NotImplementedError"),
        ("return {**spec, 'labels': {'a': float('nan')}}", "labels.a wrong_type"),
        ("return {**spec, 'name': '\\ud800'}", "raised UnicodeEncodeError"),
        ("spec['self'] = spec\nreturn spec", "raised RecursionError"),
        ("raise ValueError(spec['labels']['secret'])", "acme_rules raised ValueError at "),
        ("import nowhere_at_all", "raised ModuleNotFoundError"),
    ],
)
def test_a_broken_one_refuses_when_closed_and_is_passed_over_when_open(actor, install, settings, caplog, body, why):
    install(body, "spec['labels']['after'] = '1'\nreturn spec")
    with caplog.at_level(logging.WARNING), pytest.raises(PolicyUnavailable):
        submit(actor, labels={"secret": "canary-in-spec"})
    assert why in caplog.text
    assert "canary-in-spec" not in caplog.text
    settings.POLICY_FAILS = "open"
    submit(actor)
    assert Job.objects.get().labels == {"after": "1"}
    assert JobEvent.objects.get().message.endswith("changed labels. A policy hook failed and was skipped.")


@pytest.mark.django_db(transaction=True)
def test_it_is_asked_with_no_transaction_open(actor, install):
    install(
        "from django.db import connection\nspec['name'] = f'open-{connection.in_atomic_block}'.lower()\nreturn spec"
    )
    submit(actor)
    submit(actor, key="k")
    assert {job.name for job in Job.objects.all()} == {"open-false"}


@pytest.mark.django_db
def test_an_entry_point_that_leads_nowhere_is_a_failure(actor, install, tmp_path):
    install("return spec")
    (tmp_path / "acme_rules.py").write_text("")
    with pytest.raises(PolicyUnavailable):
        submit(actor)


@pytest.mark.django_db
def test_users_faults_stay_the_users(actor, install):
    install("raise RuntimeError")
    with pytest.raises(Invalid):
        submit(actor, name="NOT A NAME")


@pytest.mark.django_db
def test_of_items_with_the_same_key_and_body_in_one_request_it_is_asked_about_one(actor, install):
    install("if len(seen) > 1:\n    raise PolicyRefused('once is enough')\nreturn spec")
    item = make_spec() | {"idempotency_key": "train-1"}
    told = submit_jobs(
        actor, {"tenant": TENANT, "jobs": [item, item]}, show=lambda job: {"id": str(job.id)}, tell=lambda problem: {}
    )
    first, again = told.body["items"]
    assert len(sys.modules["acme_rules"].seen) == 1
    assert again["job"] == first["job"] == {"id": str(Job.objects.get().id)}
