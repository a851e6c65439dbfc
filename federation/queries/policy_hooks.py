"""Calls the installation's policy hooks for submitted jobs. No transaction is open meanwhile, and nothing is stored."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from federation.drivers.policy_hooks import ask_installed, ask_server, installed_hooks
from federation.drivers.policy_hooks import has_hooks as has_hooks
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.policy_hooks import (
    RETRY_SECONDS,
    HookFailed,
    HookNotAsked,
    PolicyRefused,
    PolicyUnavailable,
    Question,
    Said,
    changed_fields,
)
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import JobSpec
from federation.engine.intake.spec_reading import read_spec
from federation.queries.priority_classes import TenantRules
from federation.queries.submissions import rules
from foundation.problems import Problem
from foundation.requests import current_request_id
from tenancy.queries import Actor

log = logging.getLogger(__name__)
MOST_FAULTS_LOGGED = 5


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that was read and completed by its tenant's rules."""

    tenant_path: str
    spec: JobSpec
    rules: TenantRules


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The spec after the hooks, the fields that they changed, and whether a failed hook was ignored."""

    spec: JobSpec
    changed: tuple[str, ...] = ()
    is_passed_over: bool = False

    @property
    def sentence(self) -> str:
        """A sentence for the job's timeline, to follow other text; empty if there is nothing to report."""
        told = f" The policy hook changed {', '.join(self.changed)}." if self.changed else ""
        return told + (" A policy hook failed and was skipped." if self.is_passed_over else "")

    @property
    def detail(self) -> dict[str, Any]:
        """The details for the audit trail."""
        changed = {"policy_changed": list(self.changed)} if self.changed else {}
        return changed | ({"policy_passed_over": True} if self.is_passed_over else {})


def review(actor: Actor, draft: Draft, *, is_dry_run: bool = False) -> Reviewed:
    """The job as the hooks changed it. Raises PolicyRefused with their message, PolicyUnavailable if one failed."""
    [reviewed] = review_all(actor, [draft], is_dry_run=is_dry_run)
    if isinstance(reviewed, Problem):
        raise reviewed
    return reviewed


def review_all(actor: Actor, drafts: Sequence[Draft], *, is_dry_run: bool = False) -> list[Reviewed | Problem]:
    """Likewise for each job: entry points first, in the order of their names, then the HTTP hook, which sees their
    changes.
    """
    reviews = [_Review(actor, draft, is_dry_run=is_dry_run) for draft in drafts]
    failures: Counter[str] = Counter()
    for hook in installed_hooks():
        for one in _open(reviews):
            one.settle(ask_installed(hook, one.question), failures)
    asked = _open(reviews) if settings.POLICY_URL else []
    if asked:
        for one, said in zip(asked, ask_server([one.question for one in asked]), strict=True):
            one.settle(said, failures)
    for why, times in failures.items():
        log.warning("policy hook failed for %d of %d jobs (%s): %s", times, len(drafts), settings.POLICY_FAILS, why)
    return [one.outcome for one in reviews]


class _Review:
    """The review of one job by its hooks."""

    def __init__(self, actor: Actor, draft: Draft, *, is_dry_run: bool) -> None:
        self.actor, self.draft, self.is_dry_run = actor, draft, is_dry_run
        self.spec, self.is_passed_over = draft.spec, False
        self.problem: Problem | None = None

    @property
    def question(self) -> Question:
        return Question(
            self.draft.tenant_path, self.actor.name, current_request_id.get(), self.spec, is_dry_run=self.is_dry_run
        )

    @property
    def outcome(self) -> Reviewed | Problem:
        return self.problem or Reviewed(self.spec, changed_fields(self.draft.spec, self.spec), self.is_passed_over)

    def settle(self, said: Said, failures: Counter[str]) -> None:
        """Applies a hook's answer; an invalid changed spec counts as the hook's failure, not as the user's."""
        if isinstance(said, PolicyRefused):
            self.problem = said
            return
        try:
            if isinstance(said, HookFailed):
                raise said
            self.spec = self._changed(said)
        except HookFailed as failed:
            failures[str(failed)] += 1
            if settings.POLICY_FAILS == "open" and not isinstance(failed, HookNotAsked):
                self.is_passed_over = True
            else:
                self.problem = PolicyUnavailable(retry_after_seconds=RETRY_SECONDS)

    def _changed(self, changes: Any) -> JobSpec:
        if not changes:
            return self.spec
        try:
            spec = read_spec({**spec_json(self.spec), **changes}, rules())
        except Refused as refused:
            faults = ", ".join(f"{fault.field} {fault.code}" for fault in refused.faults[:MOST_FAULTS_LOGGED])
            raise HookFailed(f"the spec is no longer valid: {faults}") from None
        if spec.strategy != self.spec.strategy and self.draft.rules.policy.strategy_fault(spec.strategy):
            raise HookFailed("the tenant's placement policy does not allow the strategy")
        if spec.priority_class != self.spec.priority_class and self.draft.rules.classes.fault(spec.priority_class):
            raise HookFailed("the submitter may not use the priority class")
        return spec


def _open(reviews: Sequence[_Review]) -> list[_Review]:
    return [one for one in reviews if one.problem is None]
