"""/priority-classes: what priorities jobs may have, and who may ask for them."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.intake.priority_classes import (
    MOST_DESCRIPTION_BYTES,
    MOST_GRANTS,
    MOST_RUNNING,
    MOST_SHIELD_SECONDS,
    MOST_VALUE,
    PREEMPTS,
    ROLE_NAMES,
    USUAL_SHIELD_SECONDS,
    class_json,
    gpus_text,
)
from federation.models import PriorityClass
from federation.operations import put_class, remove_class
from federation.queries.priority_classes import as_wanted, class_by_id, visible_classes
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant
from tenancy.api.views import ApiView

ORDERS = {"created": "id", "-created": "-id"}


class GrantShape(serializers.Serializer[Any]):
    """Users who may use a class. Name a role, a tenant or both."""

    role = serializers.ChoiceField(
        choices=ROLE_NAMES,
        required=False,
        allow_null=True,
        help_text="Its holders, and holders of roles that include it; null: everyone who may submit jobs.",
    )
    tenant = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="Path; for its jobs and those of every tenant below it. Null: every tenant.",
    )


class PriorityClassShape(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    value = serializers.IntegerField(
        min_value=-MOST_VALUE, max_value=MOST_VALUE, help_text="The larger number goes first."
    )
    description = serializers.CharField(required=False, allow_blank=True, max_length=MOST_DESCRIPTION_BYTES)
    is_open = serializers.BooleanField(
        required=False, help_text="Whether everyone who may submit jobs may use it; default false."
    )
    is_default = serializers.BooleanField(
        required=False,
        allow_null=True,
        help_text="True: jobs that name none get it, unless a policy sets another. Null: remains as it is.",
    )
    preempts = serializers.ChoiceField(
        choices=PREEMPTS,
        required=False,
        help_text="`lower`: its waiting jobs may replace running jobs of lower priority in their organisation. "
        "Default `never`.",
    )
    shield_seconds = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_SHIELD_SECONDS,
        help_text="How long its jobs run at least before more urgent ones may replace them; "
        f"default {USUAL_SHIELD_SECONDS}.",
    )
    most_running = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=MOST_RUNNING,
        help_text="How many of its jobs may hold anything at the same time, in the whole installation; null: no limit.",
    )
    most_gpus = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=40,
        help_text="How many GPUs its jobs may hold at the same time, such as 16 or 0.5; null: no limit.",
    )
    grants = serializers.ListField(
        child=GrantShape(), required=False, max_length=MOST_GRANTS, help_text="Who may use it if it is not open."
    )


class PriorityClassShown(PriorityClassShape):
    id = serializers.UUIDField()
    running = serializers.IntegerField(
        allow_null=True, help_text="How many of its jobs hold anything now; null without a limit."
    )
    gpus = serializers.CharField(allow_null=True, help_text="The GPUs that its jobs hold now; null without a limit.")
    updated_at = Instant()


class PriorityClasses(ApiView):
    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="priority_classes_list", responses=page_shape(PriorityClassShown))
    def get(self, request: Request) -> Response:
        """Lists the priority classes that you may see; with `tenant`, those that you may use there."""
        rows = visible_classes(self.actor, self.query.get("tenant", ""))
        return self.page(rows, orders=ORDERS, render=show_class)

    @extend_schema(
        operation_id="priority_classes_put",
        request=PriorityClassShape,
        responses={200: PriorityClassShown, 201: PriorityClassShown},
    )
    def put(self, request: Request) -> Response:
        """Creates the priority class of this name, or replaces it as a whole. Submitted jobs keep their priority."""
        row, is_new = put_class(self.actor, request.data)
        return Response(show_class(row), status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class OnePriorityClass(ApiView):
    @extend_schema(operation_id="priority_classes_read", responses=PriorityClassShown)
    def get(self, request: Request, class_id: UUID) -> Response:
        """Returns a priority class."""
        return Response(show_class(class_by_id(self.actor, class_id)))

    @extend_schema(operation_id="priority_classes_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, class_id: UUID) -> Response:
        """Removes a priority class that no job and no policy names."""
        remove_class(self.actor, class_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


def show_class(row: PriorityClass) -> dict[str, Any]:
    """A class as the API shows it."""
    shown = class_json(as_wanted(row), is_default=row.is_default)
    held = {"running": row.running, "gpus": gpus_text(row.gpus)}
    return {"id": str(row.id), **shown, **held, "updated_at": instant(row.changed_at)}
