"""Plans and applies a file of the tenant tree. Each change is made by the operation that pages and API use.

A plan makes the same changes in a transaction that is rolled back, so its refusals and consequences are those of `apply`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from federation.engine.intake.reading import Refused
from federation.engine.tree.items import Change, Key, Kind, Wanted, ancestors, changes_of, digest_of, kept_tenants
from federation.engine.tree.reading import read_tree
from federation.locks import hold_for_tree
from federation.queries.priority_classes import classes_below_use
from federation.queries.submissions import field_errors
from federation.queries.tree import class_limits_below_use, limits_below_use, tree_items, user_limits_below_use
from foundation.problems import Conflict, FieldError, Invalid, NotFound, Problem
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, require_operator, tenant_by_path

from .tree_changes import carry_out

MOST_CHANGES = 1000
"""The maximum number of changes in one transaction, which keeps takers of quota waiting."""
MOST_SHOWN = 100
LIMITS = frozenset({Kind.LIMIT, Kind.USER_LIMIT, Kind.CLASS_LIMIT})


@dataclass(frozen=True, slots=True)
class Note:
    """Why a change is refused, or what follows from it: a stable code, and a text for users."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A change, with its refusal or its consequence."""

    change: Change
    refusal: Note | None = None
    consequence: Note | None = None


@dataclass(frozen=True, slots=True)
class TreePlan:
    """What a file changes. `digest` names exactly these changes; `kept` are tenants that only the tree has."""

    digest: str
    changes: tuple[Planned, ...]
    kept: tuple[str, ...]

    @property
    def refused(self) -> tuple[Planned, ...]:
        """The changes that the gateway refuses."""
        return tuple(one for one in self.changes if one.refusal is not None)


@retried
def plan_tree(actor: Actor, text: str, *, prune: bool = False) -> TreePlan:
    """What `apply_tree` would do, and what it would refuse. Changes nothing.

    The actor must manage the tenants at the top of the file, or the nearest ones above those that are new. Raises Invalid
    with the place of each fault, NotFound, NotAllowedHere, PermissionDenied, Conflict `too_many_changes`.
    """
    wanted = _read(text)
    with transaction.atomic():
        plan = _carried_out(actor, wanted, prune=prune, expected="")
        transaction.set_rollback(True)
    return plan


@retried
def apply_tree(actor: Actor, text: str, *, expected: str = "", prune: bool = False) -> TreePlan:
    """Makes the tree equal to the file: all changes, or none. A second time, there is none to make.

    `expected` is the digest of a plan. Raises Conflict `tree_changed` if the changes are others now, and `plan_refused` with
    each refused change; otherwise as `plan_tree`.
    """
    wanted = _read(text)
    with transaction.atomic():
        plan = _carried_out(actor, wanted, prune=prune, expected=expected)
        if plan.refused:
            raise _refusal(plan)
        if plan.changes:
            _record(actor, wanted, plan, prune=prune)
    return plan


def _read(text: str) -> Wanted:
    try:
        return read_tree(text)
    except Refused as refused:
        errors = field_errors(refused.faults)
        raise Invalid("; ".join(error.detail for error in errors[:3]), errors=errors) from None


def _carried_out(actor: Actor, wanted: Wanted, *, prune: bool, expected: str) -> TreePlan:
    """Makes the changes that are possible, in the caller's transaction."""
    _require_administrator(actor, wanted.roots)
    changes, _ = _changes(actor, wanted, prune=prune)
    if changes:
        hold_for_tree(
            {change.key.tenant for change in changes if change.key.kind in LIMITS},
            wanted.roots,
            kinds=[change.key.kind for change in changes],
            counts_all=any(map(_limits_class_anew, changes)),
        )
    changes, kept = _changes(actor, wanted, prune=prune)
    digest = digest_of(changes)
    if expected not in {"", digest}:
        raise Conflict(
            "The tree or the file changed after this plan: the changes are others now. Plan again.", code="tree_changed"
        )
    refusals = _tried(actor, changes)
    told = _consequences([change for change in changes if change.key not in refusals])
    planned = tuple(Planned(change, refusals.get(change.key), told.get(change.key)) for change in changes)
    return TreePlan(digest, planned, tuple(kept))


def _limits_class_anew(change: Change) -> bool:
    """Whether a class gets a limit in all tenants together that it has not had."""
    if change.key.kind is not Kind.PRIORITY_CLASS or change.after is None:
        return False
    before = change.before or {}
    return any(change.after[name] is not None and before.get(name) is None for name in ("most_running", "most_gpus"))


def _changes(actor: Actor, wanted: Wanted, *, prune: bool) -> tuple[list[Change], list[str]]:
    has_classes = any(key.kind is Kind.PRIORITY_CLASS for key in wanted.items)
    present = tree_items(actor, wanted.roots, with_classes=has_classes)
    changes = changes_of(wanted, present, prune=prune)
    if len(changes) > MOST_CHANGES:
        told = (
            f"A file makes at most {MOST_CHANGES} changes at a time; this one makes {len(changes)}. Apply it in parts."
        )
        raise Conflict(told, code="too_many_changes")
    return changes, [] if prune else kept_tenants(wanted, present)


def _require_administrator(actor: Actor, roots: Sequence[str]) -> None:
    if not roots:
        require_operator(actor, "apply a file without tenants")
    for root in roots:
        for path in (root, *reversed(ancestors(root))):
            try:
                tenant_by_path(actor, path, Permission.MANAGE_TENANTS)
                break
            except NotFound:
                continue
        else:
            require_operator(actor, "create and remove organisations")


def _tried(actor: Actor, changes: Sequence[Change]) -> dict[Key, Note]:
    """Makes the changes; the refusals of those that are not possible.

    A refused change is tried again after others, because it may need them: a limit can guarantee only what another one does
    not any longer. Roles are last and tried once, the actor's own after all others, because they change what the actor may do.
    """
    waiting = [change for change in changes if change.key.kind is not Kind.ROLE]
    refusals, tried = _pass(actor, waiting, frozenset()), len(waiting)
    while 0 < len(refusals) < tried:
        tried = len(refusals)
        waiting = [change for change in waiting if change.key in refusals]
        refusals = _pass(actor, waiting, frozenset())
    absent = frozenset(change.key.tenant for change in waiting if change.key in refusals and _makes_tenant(change))
    roles = [change for change in changes if change.key.kind is Kind.ROLE]
    roles.sort(key=lambda change: (change.before or {}).get("user") == actor.name)
    return refusals | _pass(actor, roles, absent)


def _pass(actor: Actor, changes: Sequence[Change], absent: frozenset[str]) -> dict[Key, Note]:
    """Tries each change once. `absent` are tenants that could not be created."""
    refusals: dict[Key, Note] = {}
    for change in changes:
        note = _try(actor, change, absent)
        if note is not None:
            refusals[change.key] = note
            if _makes_tenant(change):
                absent |= {change.key.tenant}
    return refusals


def _makes_tenant(change: Change) -> bool:
    return change.key.kind is Kind.TENANT and change.before is None


def _try(actor: Actor, change: Change, absent: frozenset[str]) -> Note | None:
    """Makes a change, or returns why it is refused."""
    if missing := absent.intersection([*ancestors(change.key.tenant), change.key.tenant]):
        return Note("tenant_not_created", f"{min(missing)} is not created")
    try:
        with transaction.atomic():
            carry_out(actor, change)
    except Problem as problem:
        return _note(problem)
    return None


def _note(problem: Problem) -> Note:
    if not problem.errors:
        return Note(problem.code, problem.detail)
    return Note(problem.errors[0].code, "; ".join(f"{error.field}: {error.detail}" for error in problem.errors))


def _consequences(changes: Sequence[Change]) -> dict[Key, Note]:
    """What follows from changed limits for running work, as the tree is after all changes."""
    paths = {change.key.tenant for change in changes if change.key.kind in LIMITS}
    names = [change.key.name for change in changes if change.key.kind is Kind.PRIORITY_CLASS]
    told: dict[Key, str] = {}
    for below_use in (limits_below_use, user_limits_below_use, class_limits_below_use) if paths else ():
        told |= below_use(paths)
    told |= {Key(Kind.PRIORITY_CLASS, "", name): text for name, text in classes_below_use(names).items()}
    return {key: Note("below_use", text) for key, text in told.items()}


def _refusal(plan: TreePlan) -> Conflict:
    errors = [
        FieldError(label_of(one.change), one.refusal.code, _placed(one.change, one.refusal.detail))
        for one in plan.refused[:MOST_SHOWN]
        if one.refusal is not None
    ]
    told = f"Nothing is applied: {len(plan.refused)} of {len(plan.changes)} changes are refused. {errors[0].detail}"
    return Conflict(told, code="plan_refused", errors=errors)


def label_of(change: Change) -> str:
    """A change's item in words, such as `limit acme/research gpu on north`."""
    return " ".join(part for part in change.key if part)


def _placed(change: Change, text: str) -> str:
    return text if change.mark is None else f"{change.mark}: {text}"


def _record(actor: Actor, wanted: Wanted, plan: TreePlan, *, prune: bool) -> None:
    """One entry for the file. Each change has its own from its operation."""
    roots = list(wanted.roots)
    tenant = tenant_by_path(actor, roots[0]) if len(roots) == 1 else None
    detail = {"plan": plan.digest, "changes": len(plan.changes), "tenants": roots[:MOST_SHOWN], "prune": prune}
    record_audit(
        actor,
        "tree.apply",
        object_kind="tree",
        object_id=roots[0][:64] if roots else "",
        tenant_id=tenant.id if tenant else None,
        detail=detail,
    )
