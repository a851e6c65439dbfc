"""Quota over HTTP: translate, make one call, translate back."""

from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.schema import page_shape
from quotas.operations import delete_limit, put_limit
from quotas.queries import limit_by_id, standings, visible_limits
from tenancy.api.views import ApiView

from .shapes import QuotaPut, QuotaShown, show_limit, wanted_limit

ORDERS = {"created": "id", "-created": "-id"}


class QuotasView(ApiView):
    """`/quotas`."""

    filters = ("tenant", "resource")
    paged = True

    @extend_schema(operation_id="quotas_list", responses=page_shape(QuotaShown))
    def get(self, request: Request) -> Response:
        """Lists the limits that you may see, with what is held against them."""
        limits = visible_limits(
            self.actor, tenant_path=self.query.get("tenant", ""), resource=self.query.get("resource", "")
        )
        page = self.page(limits, orders=ORDERS, render=lambda limit: limit)
        rows = page.data["items"]
        stand = standings(rows)
        page.data["items"] = [show_limit(limit, stand[limit.id]) for limit in rows]
        return page

    @extend_schema(operation_id="quotas_put", request=QuotaPut, responses={200: QuotaShown, 201: QuotaShown})
    def put(self, request: Request) -> Response:
        """Creates the limit of a tenant, resource and set of clusters, or replaces its amounts."""
        limit, is_new = put_limit(self.actor, **wanted_limit(self.read(QuotaPut))._asdict())
        return Response(
            show_limit(limit, standings([limit])[limit.id]),
            status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK,
        )


class QuotaView(ApiView):
    """`/quotas/{id}`."""

    @extend_schema(operation_id="quotas_read", responses=QuotaShown)
    def get(self, request: Request, limit_id: UUID) -> Response:
        """Returns a limit."""
        limit = limit_by_id(self.actor, limit_id)
        return Response(show_limit(limit, standings([limit])[limit.id]))

    @extend_schema(operation_id="quotas_delete", responses={204: OpenApiResponse(description="Removed.")})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """Removes a limit; it no longer applies to its tenant."""
        delete_limit(self.actor, limit_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
