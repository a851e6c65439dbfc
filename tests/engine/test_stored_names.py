"""Names that are stored, or written to clusters, outlive a release: a new one that read them otherwise would lose what is
there.
"""

from uuid import UUID

import pytest

from clusters.engine import escapes, inventory
from clusters.engine.secrets import Kind
from clusters.engine.storages import Mode
from federation.engine import names, sightings
from federation.engine.failures.facts import Seen
from federation.engine.failures.rules import FailureClass, Step
from federation.engine.lifecycle import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState
from federation.engine.objects import ranks
from federation.engine.retries import Cause
from federation.engine.tree import items
from placement.values.reason_codes import REASON_CODES, ReasonCode, meaning_of
from tenancy.engine.roles import GRANTS, REACH, Permission, Role, Scope, permissions_of, reach_of


@pytest.mark.parametrize(
    "kind",
    [JobState, AttemptState, ReasonCode, Role, Permission, Scope, FailureClass, Step, Seen, Kind, Mode, items.Kind],
)
def test_each_code_is_its_name_in_lower_case(kind):
    assert [one.value for one in kind] == [one.name.lower() for one in kind]


def test_causes_of_a_retry_stay():
    assert [one.value for one in Cause] == ["preempted", "node_lost", "spot", "infrastructure", "program_failed"]


def test_every_move_is_from_one_state_to_another():
    for moves, states in ((JOB_MOVES, JobState), (ATTEMPT_MOVES, AttemptState)):
        assert set(moves) == set(states)
        assert {state for after in moves.values() for state in after} <= set(states)


def test_each_reason_has_a_meaning():
    assert all(map(meaning_of, REASON_CODES))
    assert len(REASON_CODES) == len(ReasonCode)
    assert meaning_of("") == meaning_of("of_an_older_release") == ""


def test_labels_on_clusters_stay():
    labels = [names.LABEL_INSTALL, names.LABEL_TENANT, names.LABEL_JOB, names.LABEL_ATTEMPT, names.LABEL_SPEC_HASH]
    assert labels == [f"switchyard.dev/{part}" for part in ("install", "tenant", "job", "attempt", "spec-hash")]
    assert (inventory.INSTALL_LABEL, escapes.TENANT_LABEL) == (names.LABEL_INSTALL, names.LABEL_TENANT)
    assert dict.fromkeys(labels, "probe") == escapes._LABELS
    assert (names.SIMULATED_SECONDS, names.SIMULATED_EXIT_CODE) == (
        "sim.switchyard.dev/run-seconds",
        "sim.switchyard.dev/exit-code",
    )
    assert (ranks.GATE, ranks.INDEX_LABEL, ranks.HOSTNAME) == (
        "switchyard.dev/topology",
        "batch.kubernetes.io/job-completion-index",
        "kubernetes.io/hostname",
    )
    assert (escapes.PREFIX, escapes.PROBE_NAMESPACE) == (names.PREFIX, "swy-probe")


def test_names_of_objects_stay():
    attempt = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert names.object_name(attempt, 0) == "swy-aaisem2ekvthpcezvk54zxpo74"
    assert names.object_name(attempt, 2) == "swy-aaisem2ekvthpcezvk54zxpo74-2"


def test_faults_of_sightings_stay():
    assert list(sightings.TOLD) == [
        "malformed", "unknown_owner", "wrong_namespace", "wrong_labels", "not_released", "too_late", "no_such_index",
        "place_taken", "too_many_runs", "already_anothers", "wrong_job",
    ]  # fmt: skip


def test_a_role_grants_what_the_documents_say():
    granted = {role: {permission.value for permission in GRANTS[role]} for role in Role}
    assert granted == {
        "viewer": {"view"},
        "submitter": {"view", "submit"},
        "manager": {
            "view", "submit", "manage_jobs", "manage_quotas", "reserve", "dispute_charge", "manage_hooks", "manage_tenants", "view_audit",
        },
        "finance": {"view", "manage_prices", "close_period", "issue_invoice", "dispute_charge", "manage_hooks", "view_audit"},
        "admin": {permission.value for permission in Permission},
    }  # fmt: skip
    assert REACH[Scope.READ] == {"view", "view_audit"}
    assert REACH[Scope.WRITE] == {"view", "view_audit", "submit", "manage_jobs"}
    assert REACH[Scope.READ] < REACH[Scope.WRITE] < REACH[Scope.ADMIN] == set(Permission)


def test_several_roles_and_scopes_allow_what_each_of_them_does():
    assert permissions_of([]) == set()
    assert permissions_of(["submitter", "finance"]) == {
        "view",
        "submit",
        "manage_prices",
        "close_period",
        "issue_invoice",
        "dispute_charge",
        "manage_hooks",
        "view_audit",
    }
    assert reach_of(["read", "write"]) == REACH[Scope.WRITE]
    assert reach_of([]) == set(Permission), "a token without scopes may do all that its user may"
