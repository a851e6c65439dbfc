"""/tenants/{id}/policy: a tenant's own placement policy, and the one that applies with those above it."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from federation.engine.intake.policy_reading import policy_json, weights_json
from federation.engine.intake.spec import CAPACITY_TYPES
from federation.operations import put_policy, remove_policy
from federation.queries.policies import PolicyView, policy_of
from placement.fleet.policies import Policy
from placement.ranking.strategies import weights_of
from placement.values.consolidation import CONSOLIDATION
from placement.values.strategies import STRATEGY_NAMES
from tenancy.api.views import ApiView

PATTERNS = "Names; `*` matches anything. Empty allows all."

STRATEGY = f"One of {', '.join(STRATEGY_NAMES)}."


class WeightsShape(serializers.Serializer[Any]):
    """Each weight is text with up to three decimals; an omitted term keeps the strategy's weight."""

    price = serializers.CharField(required=False)
    free = serializers.CharField(required=False)
    cluster_free = serializers.CharField(required=False)
    stranding = serializers.CharField(required=False)


class PolicyShape(serializers.Serializer[Any]):
    default_strategy = serializers.CharField(required=False, allow_null=True, help_text=STRATEGY)
    default_priority_class = serializers.CharField(
        required=False, allow_null=True, help_text="Of jobs that name none: a class that users of the tenant may use."
    )
    consolidation = serializers.ChoiceField(
        choices=list(CONSOLIDATION),
        required=False,
        allow_null=True,
        help_text="Which running jobs may move so that larger ones fit. Null: as the policies above say, else `never`.",
    )
    strategies = serializers.ListField(
        child=serializers.CharField(), required=False, help_text=f"{STRATEGY} Empty allows all."
    )
    clusters = serializers.ListField(child=serializers.CharField(), required=False, help_text=PATTERNS)
    regions = serializers.ListField(child=serializers.CharField(), required=False, help_text=PATTERNS)
    capacity_types = serializers.ListField(
        child=serializers.ChoiceField(choices=list(CAPACITY_TYPES)), required=False, help_text="Empty allows all."
    )
    flavors = serializers.ListField(child=serializers.CharField(), required=False, help_text=PATTERNS)
    weights = serializers.DictField(child=WeightsShape(), required=False, help_text="By strategy.")


class TenantPolicyShape(PolicyShape):
    tenant = serializers.CharField()


class EffectiveShape(serializers.Serializer[Any]):
    default_strategy = serializers.CharField()
    default_priority_class = serializers.CharField(
        allow_null=True, help_text="As policies set it; null: the default of the installation."
    )
    consolidation = serializers.ChoiceField(choices=list(CONSOLIDATION))
    strategies = serializers.ListField(child=serializers.CharField())
    weights = serializers.DictField(child=WeightsShape(), help_text="Of the allowed strategies, every term.")


class PolicyStandingShape(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    policy = PolicyShape(allow_null=True, help_text="The tenant's own; null if it has none.")
    above = TenantPolicyShape(many=True, help_text="Policies of the tenants above it, root first; they also apply.")
    effective = EffectiveShape()


class PolicyOfTenant(ApiView):
    @extend_schema(responses=PolicyStandingShape)
    def get(self, request: Request, tenant_id: UUID) -> Response:
        """Returns the tenant's policy, those above it, and the policy that results from all of them."""
        return Response(_standing(policy_of(self.actor, tenant_id)))

    @extend_schema(request=PolicyShape, responses=PolicyStandingShape)
    def put(self, request: Request, tenant_id: UUID) -> Response:
        """Sets the tenant's own policy; an omitted field restricts nothing. Applies from the next round, to queued jobs too."""
        return Response(_standing(put_policy(self.actor, tenant_id, request.data)))

    @extend_schema(responses={204: None})
    def delete(self, request: Request, tenant_id: UUID) -> Response:
        """Removes the tenant's own policy; those above it still apply."""
        remove_policy(self.actor, tenant_id)
        return Response(status=204)


def _standing(view: PolicyView) -> dict[str, Any]:
    return {
        "tenant": view.tenant.path,
        "policy": None if view.own is None else policy_json(view.own),
        "above": [{"tenant": policy.tenant_path, **policy_json(policy)} for policy in view.above],
        "effective": _effective(view.effective),
    }


def _effective(policy: Policy) -> dict[str, Any]:
    allowed = [name for name in STRATEGY_NAMES if not policy.strategy_fault(name)]
    return {
        "default_strategy": policy.default_strategy,
        "default_priority_class": policy.default_priority_class or None,
        "consolidation": policy.consolidation,
        "strategies": allowed,
        "weights": {name: weights_json(weights_of(name, policy)) for name in allowed},
    }
