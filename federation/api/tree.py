"""/tree: the tenant tree as a file, and its plans."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.tree.items import ACTIONS, Kind
from federation.operations.tree import Note, Planned, TreePlan, apply_tree, plan_tree
from federation.queries.tree import tree_file
from foundation.plain_yaml import MOST_CHARACTERS
from foundation.shapes import FileText, Flag, StrictShape, Text
from tenancy.api.views import ApiView


class TreePlanAsk(StrictShape):
    """A file to plan."""

    file = FileText(max_length=MOST_CHARACTERS, help_text="The YAML, as docs/reference/tree.md describes it.")
    prune = Flag(default=False, help_text="Also remove the tenants that the file does not have.")


class TreeApply(TreePlanAsk):
    """A file to apply."""

    expect = Text(
        max_length=64, required=False, allow_null=True, default=None, help_text="The hash of a plan: apply only that."
    )


class NoteShape(serializers.Serializer[Any]):
    """Why a change is refused, or what follows from it."""

    code = serializers.CharField()
    detail = serializers.CharField()


class ChangeShape(serializers.Serializer[Any]):
    """One change of a plan."""

    action = serializers.ChoiceField(choices=ACTIONS)
    kind = serializers.ChoiceField(choices=[kind.value for kind in Kind])
    tenant = serializers.CharField(allow_null=True, help_text="Path; null for a priority class.")
    name = serializers.CharField(help_text="Which of its kind at that tenant; empty if there is only one.")
    before = serializers.DictField(allow_null=True, help_text="Null if it is created.")
    after = serializers.DictField(allow_null=True, help_text="Null if it is removed.")
    line = serializers.IntegerField(allow_null=True, help_text="In the file; null if the file does not have it.")
    column = serializers.IntegerField(allow_null=True)
    refusal = NoteShape(allow_null=True, help_text="Why the gateway refuses it; null if it does not.")
    consequence = NoteShape(allow_null=True, help_text="`below_use`: more is held than the new limit allows.")


class TreePlanShape(serializers.Serializer[Any]):
    """What a file changes."""

    hash = serializers.CharField(help_text="Names exactly these changes; for `expect`.")
    can_apply = serializers.BooleanField(help_text="Whether no change is refused.")
    changes = ChangeShape(many=True)
    kept = serializers.ListField(
        child=serializers.CharField(), help_text="Tenants that the file does not have, and that remain."
    )


class TreeFileShape(serializers.Serializer[Any]):
    """The tree as a file."""

    file = serializers.CharField()


class Tree(ApiView):
    """`/tree`."""

    filters = ("tenant",)

    @extend_schema(operation_id="tree_export", responses=TreeFileShape)
    def get(self, request: Request) -> Response:
        """Returns the tenant and all below it as a file, or all that you see. A plan of it shows no change."""
        path = self.query.get("tenant", "")
        return Response({"file": tree_file(self.actor, [path] if path else [])})


class TreePlanView(ApiView):
    """`/tree/plan`."""

    only_asks = True

    @extend_schema(operation_id="tree_plan", request=TreePlanAsk, responses=TreePlanShape)
    def post(self, request: Request) -> Response:
        """Returns what a file would change and what would be refused. Changes nothing."""
        asked = self.read(TreePlanAsk)
        return Response(show_plan(plan_tree(self.actor, asked["file"], prune=asked["prune"])))


class TreeApplyView(ApiView):
    """`/tree/apply`."""

    @extend_schema(operation_id="tree_apply", request=TreeApply, responses=TreePlanShape)
    def post(self, request: Request) -> Response:
        """Makes the tree equal to a file: all changes or none. Returns the changes that it made."""
        asked = self.read(TreeApply)
        plan = apply_tree(self.actor, asked["file"], expected=asked["expect"] or "", prune=asked["prune"])
        return Response(show_plan(plan))


def show_plan(plan: TreePlan) -> dict[str, Any]:
    """A plan as the API shows it."""
    return {
        "hash": plan.digest,
        "can_apply": not plan.refused,
        "changes": [_change(one) for one in plan.changes],
        "kept": list(plan.kept),
    }


def _change(one: Planned) -> dict[str, Any]:
    change = one.change
    return {
        "action": change.action,
        "kind": change.key.kind.value,
        "tenant": change.key.tenant or None,
        "name": change.key.name,
        "before": change.before,
        "after": change.after,
        "line": None if change.mark is None else change.mark.line,
        "column": None if change.mark is None else change.mark.column,
        "refusal": _note(one.refusal),
        "consequence": _note(one.consequence),
    }


def _note(note: Note | None) -> dict[str, str] | None:
    return None if note is None else {"code": note.code, "detail": note.detail}
