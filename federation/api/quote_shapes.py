"""The shapes of quotes and capacities."""

from typing import Any

from rest_framework import serializers

from billing.api.shapes import MoneyShape

from .estimates import CostPartsShape, MoveShape
from .shapes import LEVEL_WORDS, JobReasonShape, RuntimeShape, WhyNotShape


class PlacedPodSetShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    count = serializers.IntegerField(help_text="The number of pods; of an elastic pod set the most that fit.")
    flavor = serializers.CharField()
    domain = serializers.CharField(help_text="Path below the cluster: zone/block/rack, then the clique or the node.")
    level = serializers.ChoiceField(choices=LEVEL_WORDS)


class EmissionsShape(serializers.Serializer[Any]):
    """What the job emits in an hour there, in grams of CO2 equivalents."""

    grams_per_hour = serializers.CharField(allow_null=True, help_text="Null if it is not known there.")
    message = serializers.CharField()


class InterruptionsShape(serializers.Serializer[Any]):
    """The expected interruptions on spot capacity; offers are compared by `price_per_hour_of_work`."""

    per_hour = serializers.CharField()
    exposed_seconds = serializers.IntegerField(help_text="Seconds of work that an interruption can lose.")
    lost_share = serializers.CharField(help_text="The share of its time there that it is expected to lose.")
    price_per_hour_of_work = MoneyShape(allow_null=True)
    message = serializers.CharField()


class PullShape(serializers.Serializer[Any]):
    """The image of a pod set on the nodes of its flavor; of several, the one that takes longest to pull."""

    image = serializers.CharField(help_text="Its full name.")
    nodes = serializers.IntegerField(help_text="The number of nodes that have it.")
    of_nodes = serializers.IntegerField()
    seconds = serializers.IntegerField(help_text="How long another node takes to pull it; 0 if all have it.")
    message = serializers.CharField()


class BorrowedShape(serializers.Serializer[Any]):
    tenant = serializers.CharField(help_text="Whose limit would hold more than its nominal amount.")
    amount = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """Also `from`, which is a keyword of Python."""
        lender = serializers.CharField(help_text="The tenant above whose limit lends it.")
        return {**super().get_fields(), "from": lender}


class OriginShape(serializers.Serializer[Any]):
    """What the job takes under one limit and those above it of equal resource and clusters."""

    tenant = serializers.CharField(help_text="The tenant of the nearest of these limits.")
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    amount = serializers.CharField()
    own = serializers.CharField(help_text="What stays within the nominal amounts of all of them.")
    borrowed = BorrowedShape(many=True, help_text="From the tenant up. A unit can be borrowed at several limits.")


class OfferQuotaShape(serializers.Serializer[Any]):
    """Whose quota the job would take."""

    message = serializers.CharField()
    own = serializers.BooleanField(help_text="Whether nothing is borrowed.")
    limits = OriginShape(many=True)
    reclaimed_by = serializers.ListField(
        child=serializers.CharField(), help_text="Tenants whose jobs may stop it to take quota back."
    )
    others_reclaim = serializers.BooleanField(help_text="Whether jobs of tenants that you cannot see may, too.")


class ProtectionShape(serializers.Serializer[Any]):
    """Until when it would not be stopped for another job."""

    shielded_until = serializers.DateTimeField(help_text="If it starts at `expected_start_at`.")
    by_priority = serializers.BooleanField(help_text="Whether a job of a higher class may stop it after that.")


class OfferShape(serializers.Serializer[Any]):
    """One way to run the job. `flavor` and `domain` are those of the first pod set."""

    cluster = serializers.CharField()
    region = serializers.CharField()
    flavor = serializers.CharField()
    domain = serializers.CharField()
    pod_sets = PlacedPodSetShape(many=True)
    price_per_hour = MoneyShape(allow_null=True)
    interruptions = InterruptionsShape(allow_null=True, help_text="On spot capacity that may be interrupted.")
    emissions = EmissionsShape(allow_null=True, help_text="Null unless the strategy is `greenest`.")
    expected_start_at = serializers.DateTimeField()
    pull = PullShape(allow_null=True, help_text="Null if it is not known which nodes have the images.")
    estimated_seconds = serializers.IntegerField(allow_null=True, help_text="The median of `runtime` there.")
    estimated_cost = MoneyShape(allow_null=True, help_text="The sum of all parts; null if one is unknown.")
    cost_parts = CostPartsShape()
    egress = MoveShape(many=True, help_text="The data that is moved there, and from where.")
    quota = OfferQuotaShape(allow_null=True, help_text="Null for offers in `later`.")
    protection = ProtectionShape()


class QuoteShape(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    as_of = serializers.DateTimeField()
    jobs_ahead = serializers.IntegerField(help_text="Jobs of all tenants that would be considered before this one.")
    runtime = RuntimeShape(allow_null=True)
    reason = JobReasonShape(allow_null=True, help_text="Why it would wait; null when there are offers.")
    offers = OfferShape(many=True)
    later = OfferShape(many=True, help_text="On clusters without room now, soonest first.")
    why_not = WhyNotShape(many=True)


class FlavorRoomShape(serializers.Serializer[Any]):
    """What quota leaves of a flavor. Amounts are null if no limit counts it."""

    flavor = serializers.CharField()
    resource = serializers.CharField(help_text="gpu, or cpu for work without a GPU.")
    own = serializers.CharField(allow_null=True, help_text="What can be taken within the nominal amounts.")
    guaranteed = serializers.CharField(allow_null=True, help_text="What of `own` no other tenant can take.")
    borrowable = serializers.CharField(allow_null=True, help_text="What can be taken above `own` now.")
    may_be_taken_back = serializers.CharField(help_text="The most that others may take back of what is held.")
    reclaimed_by = serializers.ListField(child=serializers.CharField(), help_text="Tenants that may take it back.")
    others_reclaim = serializers.BooleanField(help_text="Whether tenants that you cannot see may, too.")


class ClusterRoomShape(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    count = serializers.IntegerField()
    at_least = serializers.BooleanField(help_text="Counting stopped at `count`.")
    within_quota = serializers.IntegerField()
    why_none = WhyNotShape(allow_null=True)
    flavors = FlavorRoomShape(many=True, help_text="What quota leaves of each flavor that the shape can use.")


class CapacityShape(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    at_least = serializers.BooleanField()
    within_quota = serializers.IntegerField()
    clusters = ClusterRoomShape(many=True)
