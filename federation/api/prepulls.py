"""Pre-pull policies of a cluster over HTTP: translate, make one call, translate back."""

from typing import Any
from uuid import UUID

from django.core.validators import RegexValidator
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.api.windows import Flag
from federation.engine.prepulls import Brake, ImageProgress, Line, State
from federation.models import PrepullPolicy
from federation.models.prepulls import LONGEST_IMAGE, MOST_AT_ONCE, MOST_IMAGES
from federation.operations import (
    change_prepull_policy,
    make_prepull_policy,
    remove_prepull_policy,
    retry_prepulls,
)
from federation.operations.prepull_policies import PolicyChanges, WantedPolicy
from federation.queries.prepulls import lines_in, policy_by_id, view_of, visible_policies
from foundation.plain_json import instant
from foundation.schema import page_shape
from foundation.shapes import Instant, StrictShape, Text
from tenancy.api.views import ApiView
from tenancy.models import NAME_PATTERN

ORDERS = {"name": "name", "-name": "-name"}
DNS_LABEL = "lower-case letters, digits and '-', starting and ending with a letter or digit"
STATES = [each.value for each in State]


class PrepullPatch(StrictShape):
    """The fields to change; omitted fields keep their values."""

    images = serializers.ListField(
        required=False,
        child=Text(max_length=LONGEST_IMAGE),
        min_length=1,
        max_length=MOST_IMAGES,
        help_text="As jobs name them: `registry/path:tag` or `registry/path@sha256:…`. A tag is pulled once.",
    )
    flavor = Text(
        required=False, allow_blank=True, max_length=120, help_text="Only nodes that offer it; empty: all nodes."
    )
    pull_secret = Text(
        required=False, allow_blank=True, max_length=63, help_text="A secret of the tenant for the images' registry."
    )
    at_once = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST_AT_ONCE, help_text="The most nodes that pull at the same time."
    )
    paused = Flag(required=False, help_text="Whether nothing is pulled.")


class PrepullCreate(PrepullPatch):
    """Images that nodes of the cluster should have."""

    name = Text(max_length=63, validators=[RegexValidator(NAME_PATTERN, DNS_LABEL)])
    tenant = Text(
        required=False,
        max_length=1100,
        help_text="Path. Whose secrets are used, and in whose namespace images are pulled; by default, the cluster's owner.",
    )

    def get_fields(self) -> dict[str, Any]:
        """The images are needed, and a policy is not made paused."""
        found = super().get_fields()
        found["images"].required = True
        del found["paused"]
        return found


class BrakeShown(serializers.Serializer[Any]):
    """Why an image is not pulled after failures."""

    failures = serializers.IntegerField(help_text="In a row.")
    until = Instant(allow_null=True, help_text="Null: pulls have stopped, and wait for a retry by a user.")
    message = serializers.CharField(help_text="Of the newest failure.")


class ImageShown(serializers.Serializer[Any]):
    """An image: the number of nodes by state."""

    image = serializers.CharField()
    nodes = serializers.DictField(child=serializers.IntegerField(), help_text=f"By state: {', '.join(STATES)}.")
    brake = BrakeShown(allow_null=True)


class PrepullShown(serializers.Serializer[Any]):
    """A pre-pull policy and its progress."""

    id = serializers.UUIDField()
    cluster = serializers.CharField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    flavor = serializers.CharField()
    pull_secret = serializers.CharField()
    at_once = serializers.IntegerField()
    paused = serializers.BooleanField()
    why_not = serializers.CharField(help_text="Why nothing is pulled now; empty if pulls may begin.")
    images = ImageShown(many=True)
    created_by = serializers.CharField()
    created_at = Instant()
    changed_at = Instant()


class NodeImageShown(serializers.Serializer[Any]):
    """An image on a node."""

    image = serializers.CharField()
    node = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    message = serializers.CharField()
    next_at = Instant(allow_null=True, help_text="When it is pulled again at the earliest.")
    needs_user = serializers.BooleanField(help_text="Whether it waits for a retry by a user.")


class NodeImagesShown(serializers.Serializer[Any]):
    """The images of a policy on its nodes, at most 1,000."""

    items = NodeImageShown(many=True)


class PrepullPoliciesView(ApiView):
    """`/clusters/{id}/prepull-policies`."""

    paged = True

    @extend_schema(operation_id="prepull_policies_list", responses=page_shape(PrepullShown))
    def get(self, request: Request, cluster_id: UUID) -> Response:
        """Lists the cluster's pre-pull policies for tenants that you may see, each with its progress."""
        return self.page(visible_policies(self.actor, cluster_id), orders=ORDERS, render=show_policy)

    @extend_schema(operation_id="prepull_policies_create", request=PrepullCreate, responses={201: PrepullShown})
    def post(self, request: Request, cluster_id: UUID) -> Response:
        """Names images that nodes of the cluster should have. Nodes that do not list them pull them, a few at a time."""
        body = self.read(PrepullCreate)
        wanted = WantedPolicy(**body | {"images": tuple(body["images"])})

        def produce() -> tuple[int, dict[str, Any]]:
            return status.HTTP_201_CREATED, show_policy(make_prepull_policy(self.actor, cluster_id, wanted))

        return self.created(request, None, f"prepull policies of {cluster_id}", produce)


class PrepullPolicyView(ApiView):
    """`/clusters/{id}/prepull-policies/{id}`."""

    @extend_schema(operation_id="prepull_policies_read", responses=PrepullShown)
    def get(self, request: Request, cluster_id: UUID, policy_id: UUID) -> Response:
        """Returns a pre-pull policy and its progress."""
        return Response(show_policy(policy_by_id(self.actor, cluster_id, policy_id)))

    @extend_schema(operation_id="prepull_policies_update", request=PrepullPatch, responses=PrepullShown)
    def patch(self, request: Request, cluster_id: UUID, policy_id: UUID) -> Response:
        """Changes a policy. Pulls of images that it no longer names are stopped, and all while it is paused."""
        body = self.read(PrepullPatch, partial=True)
        if "images" in body:
            body["images"] = tuple(body["images"])
        if "paused" in body:
            body["is_paused"] = body.pop("paused")
        return Response(show_policy(change_prepull_policy(self.actor, cluster_id, policy_id, PolicyChanges(**body))))

    @extend_schema(operation_id="prepull_policies_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, cluster_id: UUID, policy_id: UUID) -> Response:
        """Removes a policy and stops its pulls. Nodes keep the images until they need the disk."""
        remove_prepull_policy(self.actor, cluster_id, policy_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PrepullRetryView(ApiView):
    """`/clusters/{id}/prepull-policies/{id}/retry`."""

    @extend_schema(operation_id="prepull_policies_retry", request=None, responses=PrepullShown)
    def post(self, request: Request, cluster_id: UUID, policy_id: UUID) -> Response:
        """Forgets the policy's failures: it pulls again immediately. Idempotent."""
        return Response(show_policy(retry_prepulls(self.actor, cluster_id, policy_id)))


class PrepullNodesView(ApiView):
    """`/clusters/{id}/prepull-policies/{id}/nodes`."""

    filters = ("state",)

    @extend_schema(operation_id="prepull_policies_nodes", responses=NodeImagesShown)
    def get(self, request: Request, cluster_id: UUID, policy_id: UUID) -> Response:
        """Lists the images of a policy on its nodes, at most 1,000, in the policy's order."""
        policy = policy_by_id(self.actor, cluster_id, policy_id)
        return Response({"items": [_line(line) for line in lines_in(policy, self.query.get("state", ""))]})


def show_policy(policy: PrepullPolicy) -> dict[str, Any]:
    """A policy as the API shows it, as of now."""
    view = view_of(policy)
    return {
        "id": str(policy.id),
        "cluster": policy.cluster.name,
        "tenant": policy.tenant.path,
        "name": policy.name,
        "flavor": policy.flavor,
        "pull_secret": policy.pull_secret,
        "at_once": policy.at_once,
        "paused": policy.is_paused,
        "why_not": view.why_not,
        "images": [_image(image) for image in view.images],
        "created_by": policy.created_by,
        "created_at": instant(policy.created_at),
        "changed_at": instant(policy.changed_at),
    }


def _image(image: ImageProgress) -> dict[str, Any]:
    counts = {state.value: image.nodes.get(state, 0) for state in State}
    return {"image": image.image, "nodes": counts, "brake": _brake(image.brake)}


def _brake(brake: Brake | None) -> dict[str, Any] | None:
    if brake is None:
        return None
    return {"failures": brake.failures, "until": instant(brake.until), "message": brake.message}


def _line(line: Line) -> dict[str, Any]:
    return {
        "image": line.image,
        "node": line.node,
        "state": line.state.value,
        "message": line.message,
        "next_at": instant(line.next_at),
        "needs_user": line.needs_user,
    }
