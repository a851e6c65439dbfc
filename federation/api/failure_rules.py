"""/tenants/{id}/failure-rules: a tenant's own failure rules, and those of the tenants above it."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from federation.operations import put_failure_rules, remove_failure_rules
from federation.queries.failures import RulesView, rules_at
from tenancy.api.views import ApiView

from .failure_shapes import RulesShape, RulesStandingShape


class RulesOfTenant(ApiView):
    @extend_schema(responses=RulesStandingShape)
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Returns the tenant's failure rules, and those above it, the nearest first."""
        return Response(_standing(rules_at(self.actor, tenant_id)))

    @extend_schema(request=RulesShape, responses=RulesStandingShape)
    def put(self, request: Request, tenant_id: UUID) -> Response:
        """Sets the tenant's own failure rules. They judge every failure from now on, of running jobs too. Idempotent."""
        return Response(_standing(put_failure_rules(self.actor, tenant_id, request.data)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID) -> Response:
        """Removes the tenant's own failure rules; those above it still apply."""
        remove_failure_rules(self.actor, tenant_id)
        return Response(status=204)


def _standing(view: RulesView) -> dict[str, Any]:
    return {
        "tenant": view.tenant.path,
        "rules": list(view.own),
        "above": [{"tenant": path, "rules": list(rules)} for path, rules in view.above],
    }
