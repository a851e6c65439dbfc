"""Limits on each user and on submission over HTTP."""

from uuid import UUID

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.schema import page_shape
from quotas.operations import delete_submission_limit, delete_user_limit, put_submission_limit, put_user_limit
from quotas.queries import (
    submission_limit_by_id,
    user_limit_by_id,
    visible_submission_limits,
    visible_user_limits,
)
from tenancy.api.views import ApiView

from .shapes import (
    SubmissionLimitPut,
    SubmissionLimitShown,
    UserLimitPut,
    UserLimitShown,
    show_submission_limit,
    show_user_limit,
)

ORDERS = {"created": "id", "-created": "-id"}
REMOVED = OpenApiResponse(description="Removed.")


class UserLimitsView(ApiView):
    """`/user-limits`."""

    filters = ("tenant", "resource")
    paged = True

    @extend_schema(operation_id="user_limits_list", responses=page_shape(UserLimitShown))
    def get(self, request: Request) -> Response:
        """Lists the limits on each user that you may see."""
        limits = visible_user_limits(
            self.actor, tenant_path=self.query.get("tenant", ""), resource=self.query.get("resource", "")
        )
        return self.page(limits, orders=ORDERS, render=show_user_limit)

    @extend_schema(
        operation_id="user_limits_put", request=UserLimitPut, responses={200: UserLimitShown, 201: UserLimitShown}
    )
    def put(self, request: Request) -> Response:
        """Creates the limit on what each user of a tenant may hold of a resource, or replaces its amount."""
        asked = self.read(UserLimitPut)
        limit, is_new = put_user_limit(self.actor, asked["tenant"], asked["resource"], most=asked["most"])
        return Response(show_user_limit(limit), status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class UserLimitView(ApiView):
    """`/user-limits/{id}`."""

    @extend_schema(operation_id="user_limits_read", responses=UserLimitShown)
    def get(self, request: Request, limit_id: UUID) -> Response:
        """Returns a limit on each user."""
        return Response(show_user_limit(user_limit_by_id(self.actor, limit_id)))

    @extend_schema(operation_id="user_limits_delete", responses={204: REMOVED})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """Removes a limit on each user."""
        delete_user_limit(self.actor, limit_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SubmissionLimitsView(ApiView):
    """`/submission-limits`."""

    filters = ("tenant",)
    paged = True

    @extend_schema(operation_id="submission_limits_list", responses=page_shape(SubmissionLimitShown))
    def get(self, request: Request) -> Response:
        """Lists the limits on submission that you may see."""
        limits = visible_submission_limits(self.actor, tenant_path=self.query.get("tenant", ""))
        return self.page(limits, orders=ORDERS, render=show_submission_limit)

    @extend_schema(
        operation_id="submission_limits_put",
        request=SubmissionLimitPut,
        responses={200: SubmissionLimitShown, 201: SubmissionLimitShown},
    )
    def put(self, request: Request) -> Response:
        """Creates the limit on how many jobs of a tenant may wait, and how many it may submit in a minute, or replaces it."""
        asked = self.read(SubmissionLimitPut)
        limit, is_new = put_submission_limit(
            self.actor, asked["tenant"], most_waiting=asked["most_waiting"], jobs_per_minute=asked["jobs_per_minute"]
        )
        return Response(show_submission_limit(limit), status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class SubmissionLimitView(ApiView):
    """`/submission-limits/{id}`."""

    @extend_schema(operation_id="submission_limits_read", responses=SubmissionLimitShown)
    def get(self, request: Request, limit_id: UUID) -> Response:
        """Returns a limit on submission."""
        return Response(show_submission_limit(submission_limit_by_id(self.actor, limit_id)))

    @extend_schema(operation_id="submission_limits_delete", responses={204: REMOVED})
    def delete(self, request: Request, limit_id: UUID) -> Response:
        """Removes a limit on submission."""
        delete_submission_limit(self.actor, limit_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
