"""Requests about limits, policies, classes, reservations and images that cannot be fulfilled, with the codes of their refusals."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Model

from clusters.models import Cluster
from devtools.simulation.setting.stage import CLUSTERS
from federation import operations
from federation.models import Job, PriorityClass, Reservation
from federation.operations import prepull_policies, priority_classes, sessions, staging_levers
from federation.operations.failure_rules import put_failure_rules
from foundation import clock
from foundation.problems import NotFound
from quotas.engine.amounts import MAX_AMOUNT
from quotas.engine.holds import Borrowing
from quotas.models import MOST_PER_MINUTE, MOST_RECLAIM_SECONDS, MOST_WAITING, QuotaLimit
from quotas.operations import (
    delete_limit,
    delete_submission_limit,
    delete_user_limit,
    put_limit,
    put_submission_limit,
    put_user_limit,
)
from tenancy.models import Tenant

from .administration import TEAM_NAMES, path_of
from .refusals import ADA, ASTRAY, EVE, PLATFORM, UNKNOWN, Request

NOWHERE = "nowhere"
WIDE = tuple(f"cluster-{number}" for number in range(101))
"""One cluster more than a limit may name."""
LONG_IMAGE = "registry.example/" + "x" * 600 + ":1"
IMAGE = "registry.example/train:1"
POD = {"count": 1, "cpu": "1", "memory": "1Gi", "gpu": {"count": 1}}


def _team() -> str:
    return path_of(TEAM_NAMES[0])


def _team_id() -> UUID:
    return Tenant.objects.get(name=TEAM_NAMES[0], kind="team").id


def _first(model: type[Model], **which: Any) -> Any:
    """The first such row; without one, there is nothing to ask about."""
    found = model._default_manager.filter(**which).order_by("id").first()  # noqa: SLF001 - its public name differs
    if found is None:
        raise NotFound
    return found


def _guarantee_more_than_there_is() -> object:
    """What a limit keeps for a team counts at the limit above, which has less."""
    _first(QuotaLimit, tenant__path="acme", resource="gpu", clusters=[], removed_at=None)
    return put_limit(PLATFORM, _team(), "gpu", nominal=10**9, borrowing=Borrowing(None, 0))


def _change_rules_of_another_version() -> object:
    return put_failure_rules(PLATFORM, _team_id(), {"rules": []}, version="another")


def _put_class(**given: Any) -> object:
    return priority_classes.put_class(PLATFORM, {"name": ASTRAY, "value": 1} | given)


def _reserve(**given: Any) -> object:
    later = (clock.database_now() + timedelta(hours=2)).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    body = {"tenant": _team(), "name": ASTRAY, "ends_at": later, "pod_sets": [POD]}
    return operations.make_reservation(ADA, body | given, show=lambda row: {"id": str(row.id)}, key="")


def _prepull(**given: Any) -> object:
    wanted: dict[str, Any] = {"name": ASTRAY, "images": (IMAGE,)} | given
    cluster = _first(Cluster, name__in=CLUSTERS, removed_at=None)
    return prepull_policies.make_prepull_policy(PLATFORM, cluster.id, prepull_policies.WantedPolicy(**wanted))


def _submit(actor: Any = ADA, **given: Any) -> object:
    pods = {"name": "main", "image": IMAGE, **POD}
    body = {"tenant": _team(), "name": ASTRAY, "pod_sets": [pods], "deadline_seconds": 300} | given
    return operations.submit_job(actor, body, show=lambda row: {"id": str(row.id)}, key="", raw=b"")


def _submit_many(body: object) -> object:
    return operations.submit_jobs(
        ADA, body, show=lambda row: {"id": str(row.id)}, tell=lambda one: {"code": one.code}, key=""
    )


def _about_limits() -> tuple[Request, ...]:
    return (
        ("limits what does not exist", "unknown_resource", lambda: put_limit(PLATFORM, "acme", "gpus", nominal=1)),
        ("limits to less than nothing", "out_of_range", lambda: put_limit(PLATFORM, "acme", "gpu", nominal=-1)),
        ("limits to more than can be counted", "out_of_range",
         lambda: put_limit(PLATFORM, _team(), "gpu", nominal=1, borrowing=Borrowing(MAX_AMOUNT + 1, None))),
        ("limits on no cluster", "unknown_cluster", lambda: put_limit(PLATFORM, "acme", "gpu", nominal=1, clusters=(NOWHERE,))),
        ("limits on too many clusters", "out_of_range", lambda: put_limit(PLATFORM, "acme", "gpu", nominal=1, clusters=WIDE)),
        ("takes back after too long", "out_of_range",
         lambda: put_limit(PLATFORM, "acme", "gpu", nominal=1, reclaim_after=MOST_RECLAIM_SECONDS + 1)),
        ("guarantees more than there is", "guarantees_too_much", _guarantee_more_than_there_is),
        ("limits without permission", "permission_denied", lambda: put_limit(EVE, _team(), "gpu", nominal=1)),
        ("limits no tenant", "not_found", lambda: put_limit(PLATFORM, f"acme/{NOWHERE}", "gpu", nominal=1)),
        ("removes no limit", "not_found", lambda: delete_limit(PLATFORM, UNKNOWN)),
        ("removes a limit without permission", "permission_denied", lambda: delete_limit(EVE, _first(QuotaLimit, removed_at=None).id)),
        ("limits users in what does not exist", "unknown_resource", lambda: put_user_limit(PLATFORM, _team(), "gpus", most=1)),
        ("limits users to less than nothing", "out_of_range", lambda: put_user_limit(PLATFORM, _team(), "gpu", most=-1)),
        ("limits users without permission", "permission_denied", lambda: put_user_limit(EVE, _team(), "gpu", most=1)),
        ("removes no limit on users", "not_found", lambda: delete_user_limit(PLATFORM, UNKNOWN)),
        ("limits no submission", "required", lambda: put_submission_limit(PLATFORM, _team(), most_waiting=None, jobs_per_minute=None)),
        ("limits submission to less than nothing", "out_of_range",
         lambda: put_submission_limit(PLATFORM, _team(), most_waiting=-1, jobs_per_minute=None)),
        ("limits waiting jobs to too many", "out_of_range",
         lambda: put_submission_limit(PLATFORM, _team(), most_waiting=MOST_WAITING + 1, jobs_per_minute=1)),
        ("limits jobs a minute to too many", "out_of_range",
         lambda: put_submission_limit(PLATFORM, _team(), most_waiting=None, jobs_per_minute=MOST_PER_MINUTE + 1)),
        ("removes no limit on submission", "not_found", lambda: delete_submission_limit(PLATFORM, UNKNOWN)),
    )  # fmt: skip


def _about_rules() -> tuple[Request, ...]:
    return (
        ("sets a policy that is none", "validation_failed", lambda: operations.put_policy(PLATFORM, _team_id(), {"clusters": "all"})),
        ("sets a policy without permission", "permission_denied", lambda: operations.put_policy(EVE, _team_id(), {})),
        ("changes rules that have changed", "state_conflict", _change_rules_of_another_version),
        ("sets rules that are none", "validation_failed", lambda: put_failure_rules(PLATFORM, _team_id(), {"rules": [{"name": 1}]})),
        ("sets a class that is none", "validation_failed", lambda: _put_class(value="high")),
        ("grants a class to no tenant", "unknown_tenant", lambda: _put_class(grants=[{"tenant": f"acme/{NOWHERE}"}])),
        ("leaves no class the default", "not_allowed",
         lambda: _put_class(name=_first(PriorityClass, is_default=True).name, is_default=False)),
        ("sets a class as a user", "permission_denied", lambda: priority_classes.put_class(ADA, {"name": ASTRAY, "value": 1})),
        ("removes the default class", "priority_class_in_use",
         lambda: priority_classes.remove_class(PLATFORM, _first(PriorityClass, is_default=True).id)),
        ("opens the session of no job", "not_found", lambda: sessions.issue_ticket(ADA, UNKNOWN)),
        ("lets no job run without its data", "not_found", lambda: staging_levers.run_without_data(ADA, UNKNOWN)),
        ("attests no run", "not_found", lambda: operations.attest_run(PLATFORM, UNKNOWN, {"note": "seen"})),
        ("attests a run without a note", "validation_failed", lambda: operations.attest_cluster(
            PLATFORM, _first(Cluster, removed_at=None).id, {"what": "destroyed"})),
        ("attests without permission", "permission_denied", lambda: operations.attest_cluster(
            EVE, _first(Cluster, removed_at=None).id, {"what": "vanished", "note": "seen"})),
    )  # fmt: skip


def _about_room() -> tuple[Request, ...]:
    return (
        ("reserves in the past", "in_the_past", lambda: _reserve(starts_at="2020-01-01T00:00:00Z")),
        ("reserves for ever", "out_of_range", lambda: _reserve(ends_at="2031-01-01T00:00:00Z")),
        ("reserves no nodes", "validation_failed", lambda: _reserve(pod_sets=[])),
        ("reserves for no tenant", "not_found", lambda: _reserve(tenant=f"acme/{NOWHERE}")),
        ("cancels no reservation", "not_found", lambda: operations.cancel_reservation(ADA, UNKNOWN)),
        ("cancels a reservation without permission", "permission_denied",
         lambda: operations.cancel_reservation(EVE, _first(Reservation).id)),
        ("pulls an image that is none", "bad_format", lambda: _prepull(images=("not an image",))),
        ("pulls an image of a long name", "too_long", lambda: _prepull(images=(LONG_IMAGE,))),
        ("pulls an image twice", "duplicate", lambda: _prepull(images=(IMAGE, IMAGE))),
        ("pulls to no flavor", "unknown_flavor", lambda: _prepull(flavor="none-such")),
        ("pulls for no tenant", "not_found", lambda: _prepull(tenant=f"acme/{NOWHERE}")),
        ("removes no policy of pulls", "not_found", lambda: prepull_policies.remove_prepull_policy(
            PLATFORM, _first(Cluster, removed_at=None).id, UNKNOWN)),
    )  # fmt: skip


def _about_jobs() -> tuple[Request, ...]:
    ended = {"state__in": ("succeeded", "failed")}
    return (
        ("submits without permission", "permission_denied", lambda: _submit(EVE)),
        ("submits a job without a name", "validation_failed", lambda: _submit(name="")),
        ("submits with a strategy that is none", "unknown_value", lambda: _submit(strategy="best")),
        ("submits for no cluster", "unknown_cluster", lambda: _submit(constraints={"clusters": [NOWHERE]})),
        ("submits with a dataset that is none", "validation_failed", lambda: _submit(datasets=["none-such"])),
        ("submits many of a field that is none", "unknown_field", lambda: _submit_many({"jobs": [{}], "mood": "good"})),
        ("submits too many", "validation_failed", lambda: _submit_many({"tenant": _team(), "jobs": [{}] * 10_001})),
        ("cancels no job", "not_found", lambda: operations.request_cancellation(ADA, UNKNOWN)),
        ("cancels a job without permission", "permission_denied", lambda: operations.request_cancellation(EVE, _first(Job).id)),
        ("suspends no job", "not_found", lambda: operations.request_suspension(ADA, UNKNOWN)),
        ("suspends a job without permission", "permission_denied", lambda: operations.request_suspension(EVE, _first(Job).id)),
        ("moves a job without permission", "permission_denied", lambda: operations.request_migration(EVE, _first(Job).id, {})),
        ("lets an ended job run without its data", "state_conflict",
         lambda: staging_levers.run_without_data(ADA, _first(Job, **ended).id)),
        ("opens the session of an ended job", "state_conflict", lambda: sessions.issue_ticket(ADA, _first(Job, **ended).id)),
        ("opens a session as the platform", "permission_denied", lambda: sessions.issue_ticket(PLATFORM, _first(Job).id)),
    )  # fmt: skip


REQUESTS: tuple[Request, ...] = (*_about_limits(), *_about_rules(), *_about_room(), *_about_jobs())
