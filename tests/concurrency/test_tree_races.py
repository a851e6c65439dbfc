"""Files of the tenant tree at the same time, against takers of quota, and killed in the middle."""

import pytest
import yaml
from django.db import OperationalError, connection, connections

from federation.operations.tree import apply_tree, plan_tree
from federation.operations.tree_changes import carry_out
from foundation.problems import Problem
from quotas.models import QuotaLimit
from quotas.operations import end_holds, put_limit, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_limit, make_tenant
from tests.concurrency.test_people_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
HEAD = "apiVersion: switchyard/v1\nkind: TenantTree\n"


def file_of(gpus, *teams):
    entries = [{"path": "acme", "limits": [{"resource": "gpu", "nominal": gpus}]}]
    entries += [
        {"path": f"acme/{team}", "kind": "team", "limits": [{"resource": "gpu", "nominal": 4, "borrowing_limit": None}]}
        for team in teams
    ]
    return HEAD + yaml.safe_dump({"tenants": entries})


def test_of_two_files_with_a_plan_each_one_is_applied_and_the_other_sees_the_change():
    make_limit("acme", "gpu", "8")
    files = [file_of(gpus, "a", "b") for gpus in (12, 16)]
    plans = [plan_tree(SYSTEM, file).digest for file in files]
    answers = at_once(
        *[
            lambda file=file, digest=digest: apply_tree(SYSTEM, file, expected=digest).digest
            for file, digest in zip(files, plans, strict=True)
        ]
    )
    assert answers.count("tree_changed") == 1
    winner = next(answer for answer in answers if answer != "tree_changed")
    assert QuotaLimit.objects.get(tenant__path="acme").nominal == {plans[0]: 12000, plans[1]: 16000}[winner]
    assert AuditEntry.objects.filter(action="tree.apply").count() == 1


def test_many_apply_the_same_file_and_each_change_is_made_once():
    make_tenant("acme")
    answers = at_once(*[lambda: len(apply_tree(SYSTEM, file_of(8, "a", "b", "c")).changes)] * 6)
    assert sorted(answers) == [0] * 5 + [7]
    assert AuditEntry.objects.filter(action="tenant.create").count() == 3


def test_files_takers_and_pages_change_the_same_limits_and_the_counters_stay_right():
    make_limit("acme", "gpu", "64")
    apply_tree(SYSTEM, file_of(64, "a", "b"))

    def work(team):
        def act():
            for _ in range(6):
                asked = hold_request(f"acme/{team}")
                if take_holds([asked])[asked.holder_id] is None:
                    end_holds({asked.holder_id: "posted"})

        return act

    def files():
        for number in range(6):
            apply_tree(SYSTEM, file_of(32 + number, "a", "b", f"n{number}"))

    def page():
        for number in range(6):
            put_limit(SYSTEM, "acme/b", "gpu", nominal=(4 + number) * 1000)

    answers = at_once(work("a"), work("b"), files, page)
    assert answers == [None] * 4, answers
    assert discrepancies() == ()
    assert Tenant.objects.filter(path__startswith="acme/n").count() == 6


@pytest.mark.parametrize("after", [1, 4])
def test_an_apply_that_is_killed_in_the_middle_changes_nothing(monkeypatch, after):
    make_limit("acme", "gpu", "8")
    made = []

    def killed(actor, change):
        if len(made) == after:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        made.append(change)
        carry_out(actor, change)

    monkeypatch.setattr("federation.operations.tree.carry_out", killed)
    with pytest.raises(OperationalError):
        apply_tree(SYSTEM, file_of(16, "a", "b"))
    connections.close_all()
    monkeypatch.undo()
    assert len(made) == after
    assert list(Tenant.objects.values_list("path", flat=True)) == ["acme"]
    assert QuotaLimit.objects.get().nominal == 8000
    assert not AuditEntry.objects.exists()
    assert len(apply_tree(SYSTEM, file_of(16, "a", "b")).changes) == 5


def test_a_tenant_that_gets_work_while_it_is_pruned_remains_or_is_removed_whole():
    for number in range(4):
        make_limit(f"acme/t{number}", "gpu", "4")
        path, asked = f"acme/t{number}", hold_request(f"acme/t{number}")

        def take(asked=asked):
            refusal = take_holds([asked])[asked.holder_id]
            return "held" if refusal is None else refusal.code

        def prune():
            try:
                apply_tree(SYSTEM, HEAD + "tenants:\n- path: acme\n", prune=True)
            except Problem as problem:
                return problem.errors[0].code
            return "pruned"

        answers = at_once(prune, take)
        is_there = Tenant.objects.filter(path=path).exists()
        assert is_there == (answers[0] != "pruned"), answers
        if is_there:
            assert QuotaLimit.objects.filter(tenant__path=path, removed_at=None).exists()
            end_holds({asked.holder_id: "voided"})
            return
        assert answers[1] != "held"
