"""The shapes of quotes."""

from typing import Any

from rest_framework import serializers

from billing.api.shapes import MoneyShape

from .estimates import CostPartsShape, MoveShape
from .shapes import LEVEL_WORDS, JobReasonShape, RuntimeShape, WhyNotShape


class PlacedPodSetShape(serializers.Serializer[Any]):
    name = serializers.CharField()
    flavor = serializers.CharField()
    domain = serializers.CharField(help_text="Path below the cluster: zone/block/rack, then the clique or the node.")
    level = serializers.ChoiceField(choices=LEVEL_WORDS)


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


class OfferShape(serializers.Serializer[Any]):
    """One way to run the job. `flavor` and `domain` are those of the first pod set."""

    cluster = serializers.CharField()
    region = serializers.CharField()
    flavor = serializers.CharField()
    domain = serializers.CharField()
    pod_sets = PlacedPodSetShape(many=True)
    price_per_hour = MoneyShape(allow_null=True)
    interruptions = InterruptionsShape(allow_null=True, help_text="On spot capacity that may be interrupted.")
    expected_start_at = serializers.DateTimeField()
    pull = PullShape(allow_null=True, help_text="Null if it is not known which nodes have the images.")
    estimated_seconds = serializers.IntegerField(allow_null=True, help_text="The median of `runtime` there.")
    estimated_cost = MoneyShape(allow_null=True, help_text="The sum of all parts; null if one is unknown.")
    cost_parts = CostPartsShape()
    egress = MoveShape(many=True, help_text="The data that is moved there, and from where.")


class QuoteShape(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    as_of = serializers.DateTimeField()
    jobs_ahead = serializers.IntegerField(help_text="Jobs of all tenants that would be considered before this one.")
    runtime = RuntimeShape(allow_null=True)
    reason = JobReasonShape(allow_null=True, help_text="Why it would wait; null when there are offers.")
    offers = OfferShape(many=True)
    later = OfferShape(many=True, help_text="On clusters without room now, soonest first.")
    why_not = WhyNotShape(many=True)
