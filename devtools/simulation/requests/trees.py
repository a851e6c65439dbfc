"""Administrators describe the tenant tree in files, while jobs of its teams wait and run: they export, edit, plan and apply.

Whatever else changes the tree is done by the same operators, one thing after the other. So between a plan and the file that
is applied next, only what jobs hold and what tenants have changes: that is judged here.
"""

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from devtools.simulation.setting.stage import user
from federation.operations.tree import TreePlan, apply_tree, plan_tree
from federation.queries.tree import tree_file
from foundation.problems import Conflict, Problem
from quotas.models import QuotaLimit
from quotas.operations import delete_limit
from tenancy.engine.roles import Role
from tenancy.models import RoleBinding, Tenant
from tenancy.operations import bind_role
from tenancy.queries import SYSTEM

from . import submission_limits
from .tree_files import Author

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MANY = 1_000_000
OF_RUNNING_WORK = frozenset({"guarantee_not_free", "tenant_not_empty", "guarantees_too_much"})
"""Refusals that jobs cause, which come and go without a change of the tree. The last one goes with the first: a limit that
could not be lowered stays.
"""
LIMITING = frozenset({"tree_applied", "limits_shaped"})
"""Kinds of events that make limits on all levels."""
READING = frozenset({"validation_failed", "too_many_changes"})
NOT_ALLOWED = frozenset({"permission_denied", "not_found"})


class Person:
    """Who describes the tree: an operator, or an administrator of the organisation, who may not do everything."""

    def __init__(self, world: "World", number: int) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/tree/{number}")
        self._actor = SYSTEM if self._chance.random() < 0.6 else user("ada")
        self._prune = False
        self._text = ""
        self._digest = ""
        self._seed = self._chance.randrange(MANY)

    def export(self) -> None:
        """The plan of an exported file has no changes."""
        text = tree_file(self._actor, ["acme"] if self._seed % 2 else [])
        plan = plan_tree(self._actor, text)
        if plan.changes:
            self._object(f"the plan of an exported file changes {_keys(plan)}")

    def plan(self) -> None:
        """Writes a file, and plans it. A file with faults is refused."""
        author = Author(random.Random(self._seed), _places())
        if self._seed % 5 == 0:
            self._refused(author.faulty())
            return
        if self._seed % 5 == 1:
            self._text = author.edited(tree_file(self._actor, ["acme"]))
        else:
            self._text, self._prune = author.draft()
        self._digest = plan_tree(self._actor, self._text, prune=self._prune).digest
        if self._seed % 2 and plan_tree(self._actor, self._text, prune=self._prune).digest != self._digest:
            self._object("a file is planned twice, and the second plan is another one")

    def tell_a_story(self) -> None:
        """Begins the files of a project's life; each is applied then."""
        for text, prune in Author(random.Random(self._seed), _places()).story():
            self._text, self._prune = text, prune
            self.apply()

    def apply(self) -> None:
        """Plans the file again, and applies exactly that: it is refused for what the plan said, or changes what it said."""
        if not self._text:
            return
        plan = plan_tree(self._actor, self._text, prune=self._prune)
        submission_limits.forget(self._world)
        try:
            done = apply_tree(self._actor, self._text, expected=plan.digest, prune=self._prune)
        except Conflict as conflict:
            self._judge_refusal(plan, conflict)
            return
        self._note(done)
        if [one.change for one in done.changes] != [one.change for one in plan.changes]:
            self._object(f"it was planned to change {_keys(plan)}, and {_keys(done)} was changed")
        self._apply_again(done)

    def apply_old(self) -> None:
        """Applies what was planned a while ago: either that still is what it changes, or nothing is done."""
        if not self._text:
            return
        submission_limits.forget(self._world)
        try:
            done = apply_tree(self._actor, self._text, expected=self._digest, prune=self._prune)
        except Conflict as conflict:
            if conflict.code not in {"tree_changed", "plan_refused"}:
                self._object(f"an old plan is refused as {conflict.code}: {conflict}")
            return
        self._note(done)
        if done.digest != self._digest:
            self._object(f"it was planned to do {self._digest}, and {done.digest} was done")

    def _apply_again(self, done: TreePlan) -> None:
        """Nothing is left to be changed, unless the actor has lost the right to see or do it."""
        try:
            again = apply_tree(self._actor, self._text, prune=self._prune)
        except Problem as problem:
            if problem.code not in NOT_ALLOWED or self._actor is SYSTEM:
                self._object(f"a file that was applied is refused then as {problem.code}: {problem}")
            return
        if again.changes and self._actor is SYSTEM:
            self._object(f"{_keys(done)} was changed, and then {_keys(again)} again")
        self._note(again)

    def _judge_refusal(self, plan: TreePlan, conflict: Conflict) -> None:
        codes = {one.refusal.code for one in plan.refused if one.refusal is not None}
        now = {error.code for error in conflict.errors or ()}
        if conflict.code != "plan_refused":
            self._object(f"a plan that was just made is refused as {conflict.code}: {conflict}")
        elif codes ^ now and not (codes | now) & OF_RUNNING_WORK:
            self._object(f"it was planned to be refused as {sorted(codes)}, and is refused as {sorted(now)}")

    def _refused(self, text: str) -> None:
        try:
            plan_tree(self._actor, text)
        except Problem as problem:
            if problem.code not in READING:
                self._object(f"a file with faults is refused as {problem.code}: {problem}")
            return
        self._object("a file with faults is planned")

    def _note(self, done: TreePlan) -> None:
        """Its entry in the audit trail is looked for at the end."""
        if done.changes:
            self._world.fulfilled.append((self._world.scheduler.now_us, "tree.apply"))

    def _object(self, words: str) -> None:
        self._world.machine.unexpected.append(f"tree file: {words}")


def apply_file(world: "World") -> None:
    """Somebody exports the tree, plans a file, and applies it immediately, or later what they planned first."""
    faults = world.faults
    person = Person(world, faults.choose(range(MANY)))
    world.wish("exports the tree", person.export)
    world.wish("plans a file of the tree", person.plan)
    if faults.choose(range(3)):
        world.wish("applies a file of the tree", person.apply)
    else:
        world.scheduler.after(faults.between(1, 30), lambda: world.wish("applies what was planned", person.apply_old))
    if faults.choose(range(3)) == 0:
        world.wish("lets a project begin and end", Person(world, faults.choose(range(MANY))).tell_a_story)
    elif faults.choose(range(2)):
        later = Person(world, faults.choose(range(MANY)))
        world.wish("plans another file", later.plan)
        world.wish("applies another file", later.apply)


def heal(world: "World") -> None:
    """What files, or limits of any form, keep jobs from ending with."""
    if LIMITING.isdisjoint(world.faults.rates):
        return
    world.wish("removes all limits", remove_limits)
    world.wish("gives administrators their roles back", restore_roles)


def remove_limits() -> None:
    """All limits but those that the administration restores."""
    kept = QuotaLimit.objects.filter(tenant__path="acme", resource="gpu", clusters=[]).values("id")
    left = QuotaLimit.objects.filter(removed_at=None).exclude(id__in=kept).order_by("-tenant__depth", "id")
    for limit_id in left.values_list("id", flat=True):
        delete_limit(SYSTEM, limit_id)


def restore_roles() -> None:
    """Both users are administrators of the organisation, as at the beginning."""
    acme = Tenant.objects.get(path="acme")
    for email in ("ada@acme.example", "ben@acme.example"):
        if not RoleBinding.objects.filter(tenant=acme, user__email=email, role=Role.ADMIN).exists():
            bind_role(SYSTEM, acme.id, role=Role.ADMIN, user=email)


def _places() -> Mapping[str, list[str]]:
    """The departments of the organisation, with their teams."""
    found: dict[str, list[str]] = {
        path: [] for path in Tenant.objects.filter(kind="department").order_by("path").values_list("path", flat=True)
    }
    for path in (
        Tenant.objects.filter(kind="team", path__startswith="acme/").order_by("path").values_list("path", flat=True)
    ):
        found.setdefault(path.rpartition("/")[0], []).append(path)
    return found


def _keys(plan: TreePlan) -> list[str]:
    return [" ".join((one.change.action, *filter(None, one.change.key))) for one in plan.changes]


EVENTS: dict[str, Callable[["World"], None]] = {"tree_applied": apply_file}
"""By the kind of fault."""
