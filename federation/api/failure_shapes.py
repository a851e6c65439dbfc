"""Bodies about failures, for the OpenAPI description: rules, and diagnoses. `engine.intake.failure_rules` validates rules."""

from typing import Any

from rest_framework import serializers

from federation.engine.failures import patterns
from federation.engine.failures.facts import MOST_SIGNAL, Seen
from federation.engine.failures.rules import (
    LEAST_KEPT_SECONDS,
    MOST_CONDITIONS,
    MOST_KEPT_SECONDS,
    MOST_RETRIES_OF_RULE,
    MOST_RULES,
    MOST_SECONDS,
    FailureClass,
    Step,
)
from federation.engine.intake.failure_rules import (
    AVOIDABLE,
    USUAL_AVOID_SECONDS,
    USUAL_KEPT_SECONDS,
    USUAL_RETRIES_OF_RULE,
)

RULES = (
    "In order; the first that matches a failure decides, before the rules of the tenants above and the gateway's own."
)
OUTCOMES = ["placed", "withdrawn", "given_up", "unusable"]
PATTERNS = f"Texts; `*` matches anything. Or a name: {', '.join(patterns.PRESETS)}."
CLASSES = [one.value for one in FailureClass]
STEPS = [one.value for one in Step]


def _texts(about: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(), max_length=MOST_CONDITIONS, required=False, help_text=about
    )


class WhenShape(serializers.Serializer[Any]):
    """What must be seen: all conditions of the same pod, and of each list one value."""

    exit_codes = serializers.ListField(
        child=serializers.CharField(), max_length=MOST_CONDITIONS, required=False, help_text='Codes, or "129-159".'
    )
    signals = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=MOST_SIGNAL), max_length=MOST_CONDITIONS, required=False
    )
    seen = serializers.ListField(child=serializers.ChoiceField(choices=[one.value for one in Seen]), required=False)
    pod_sets = _texts("Names of pod sets; `*` matches anything.")
    node_taints = _texts(PATTERNS)
    messages = _texts(PATTERNS)
    log = _texts(PATTERNS)


class BackoffShape(serializers.Serializer[Any]):
    """The wait before a retry; it doubles with each one."""

    seconds = serializers.IntegerField(min_value=0, max_value=MOST_SECONDS, default=0)
    most_seconds = serializers.IntegerField(min_value=0, max_value=MOST_SECONDS, default=MOST_SECONDS)


class AvoidShape(serializers.Serializer[Any]):
    what = serializers.ChoiceField(choices=AVOIDABLE, default="node")
    seconds = serializers.IntegerField(min_value=1, max_value=MOST_SECONDS, default=USUAL_AVOID_SECONDS)


class GrowthShape(serializers.Serializer[Any]):
    factor = serializers.CharField(default="2")
    most = serializers.CharField(required=False, allow_null=True, help_text="The most memory that a pod gets.")


class RuleShape(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    when = WhenShape(required=False)
    then = serializers.ChoiceField(choices=STEPS, default=Step.STOP.value)
    text = serializers.CharField(required=False, max_length=300)
    retries = serializers.IntegerField(min_value=1, max_value=MOST_RETRIES_OF_RULE, default=USUAL_RETRIES_OF_RULE)
    backoff = BackoffShape(required=False)
    avoid = AvoidShape(required=False)
    memory = GrowthShape(required=False)
    keep_seconds = serializers.IntegerField(
        min_value=LEAST_KEPT_SECONDS,
        max_value=MOST_KEPT_SECONDS,
        default=USUAL_KEPT_SECONDS,
        help_text="How long the place is kept, beyond the wait.",
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """With `class`, which no attribute can be named."""
        return {**super().get_fields(), "class": serializers.ChoiceField(choices=CLASSES, required=False)}


class RulesShape(serializers.Serializer[Any]):
    rules = serializers.ListField(child=RuleShape(), max_length=MOST_RULES, help_text=RULES)


class TenantRulesShape(RulesShape):
    tenant = serializers.CharField()


class RulesStandingShape(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    rules = serializers.ListField(child=RuleShape(), help_text="The tenant's own; empty if it has none.")
    above = TenantRulesShape(many=True, help_text="Of the tenants above it, the nearest first; they also apply.")


class KeptPlaceShape(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())
    until = serializers.DateTimeField(help_text="It is kept until then at most.")
    is_kept = serializers.BooleanField(help_text="Whether it is kept now.")
    outcome = serializers.ChoiceField(choices=OUTCOMES, allow_null=True, help_text="Null while it is kept.")


class FailureShape(serializers.Serializer[Any]):
    """Why an attempt failed, and what follows."""

    text = serializers.CharField()
    rule = serializers.CharField(help_text="The owner of the rule that decided, and its name.")
    next_step = serializers.ChoiceField(choices=STEPS)
    next_step_text = serializers.CharField()
    retry = serializers.IntegerField(help_text="The number of retries by this rule, with the next one.")
    retries = serializers.IntegerField(help_text="The most retries by this rule.")
    retry_at = serializers.DateTimeField(allow_null=True, help_text="The retry starts no sooner.")
    node = serializers.CharField(allow_blank=True, help_text="The node of the pod that the rule matched.")
    is_infrastructure = serializers.BooleanField(help_text="Whether the job did not cause it.")
    kept_place = KeptPlaceShape(allow_null=True, help_text="The place that is, or was, kept for the retry.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """With `class`, which no attribute can be named."""
        return {"class": serializers.ChoiceField(choices=CLASSES), **super().get_fields()}
