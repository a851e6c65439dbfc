"""/class-limits: what all jobs of a priority class may hold at a tenant and below it."""

from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations.class_limits import put_tenant_class_limit
from foundation.schema import page_shape
from quotas.api.shapes import ClassLimitPut, ClassLimitShown, show_class_limit
from quotas.operations import delete_class_limit
from quotas.queries import class_limit_by_id, visible_class_limits
from tenancy.api.views import ApiView

ORDERS = {"created": "id", "-created": "-id"}


class ClassLimits(ApiView):
    """`/class-limits`."""

    filters = ("tenant", "priority_class", "resource")
    paged = True

    @extend_schema(operation_id="class_limits_list", responses=page_shape(ClassLimitShown))
    def get(self, request: Request) -> Response:
        """Lists the limits of priority classes at tenants that you may see."""
        limits = visible_class_limits(
            self.actor,
            tenant_path=self.query.get("tenant", ""),
            class_name=self.query.get("priority_class", ""),
            resource=self.query.get("resource", ""),
        )
        return self.page(limits, orders=ORDERS, render=show_class_limit)

    @extend_schema(
        operation_id="class_limits_put", request=ClassLimitPut, responses={200: ClassLimitShown, 201: ClassLimitShown}
    )
    def put(self, request: Request) -> Response:
        """Creates the limit on what all jobs of a priority class may hold at a tenant and below it, or replaces its amount."""
        asked = self.read(ClassLimitPut)
        limit, is_new = put_tenant_class_limit(
            self.actor, asked["tenant"], asked["priority_class"], asked["resource"], most=asked["most"]
        )
        return Response(show_class_limit(limit), status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class OneClassLimit(ApiView):
    """`/class-limits/{id}`."""

    @extend_schema(operation_id="class_limits_read", responses=ClassLimitShown)
    def get(self, request: Request, limit_id: UUID) -> Response:
        """Returns a limit of a priority class at a tenant."""
        return Response(show_class_limit(class_limit_by_id(self.actor, limit_id)))

    @extend_schema(operation_id="class_limits_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """Removes a limit of a priority class at a tenant."""
        delete_class_limit(self.actor, limit_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
