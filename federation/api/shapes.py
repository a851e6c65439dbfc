"""Request and response bodies of jobs, for the OpenAPI description. `engine.intake` parses and validates them."""

from typing import Any, ClassVar

from rest_framework import serializers

from billing.api.shapes import MoneyShape
from federation.engine.artifacts import MOST_ARTIFACTS
from federation.engine.failures.rules import MOST_RULES
from federation.engine.intake import gpu_needs, spec
from federation.engine.intake.job_fields import JOB_FIELDS, Choice, JobField, Part, Text, Whole
from federation.engine.lifecycle import AttemptState, JobState
from federation.engine.retries import MOST_RETRIES, USUAL_RETRIES
from federation.operations.bulk_submission import MAX_JOBS
from foundation.shapes import ProblemShape
from placement.values.model import LEVELS
from placement.values.reason_codes import REASON_CODES

from .artifact_shapes import DeclaredArtifactShape, JobArtifactShape
from .estimates import EstimateShape
from .failure_shapes import RULES, FailureShape, RuleShape
from .pending_stops import PendingStopShape
from .pod_shapes import ElasticShape, PodSetShape
from .reports import ProgressShape
from .session_shapes import SessionShape

JOB_STATES = [state.value for state in JobState]
ATTEMPT_STATES = [state.value for state in AttemptState]
LEVEL_WORDS = list(LEVELS)
MODES = ["preferred", "required"]
AnyField = serializers.Field[Any, Any, Any, Any]


class TierShape(serializers.Serializer[Any]):
    """Places that the job may use once it has waited `after_seconds`; without clusters and regions, all that its other constraints allow."""

    after_seconds = serializers.IntegerField(
        min_value=0, max_value=spec.MAX_SECONDS, help_text="0 in the first tier, more in each later one."
    )
    clusters = serializers.ListField(child=serializers.CharField(), required=False)
    regions = serializers.ListField(child=serializers.CharField(), required=False, help_text="`*` matches anything.")


class ConstraintsShape(serializers.Serializer[Any]):
    clusters = serializers.ListField(child=serializers.CharField(), required=False)
    exclude_clusters = serializers.ListField(child=serializers.CharField(), required=False)
    regions = serializers.ListField(child=serializers.CharField(), required=False, help_text="`*` matches anything.")
    capacity_types = serializers.ListField(
        child=serializers.ChoiceField(choices=list(spec.CAPACITY_TYPES)), required=False
    )
    overflow = serializers.ListField(
        child=TierShape(), max_length=spec.MAX_TIERS, required=False, help_text="In the order in which they open."
    )
    reservation = serializers.CharField(
        required=False, max_length=63, help_text="Name or id of an advance reservation; the job runs only there."
    )
    gpu_memory_gib_min = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=gpu_needs.MAX_GPU_MEMORY_GIB,
        help_text="All GPUs of the job have at least this memory, as reported by their nodes.",
    )
    gpu_architecture = serializers.ListField(
        child=serializers.CharField(max_length=31),
        max_length=gpu_needs.MAX_ARCHITECTURES,
        required=False,
        help_text="All its GPUs have one of these architectures, such as hopper.",
    )
    gpu_compute_capability_min = serializers.CharField(required=False, max_length=24, help_text="Such as 9.0.")
    gpu_driver_min = serializers.CharField(required=False, max_length=24, help_text="Such as 550 or 550.54.15.")
    gpu_cuda_min = serializers.CharField(
        required=False,
        max_length=24,
        help_text="The CUDA version that the driver supports is at least this, such as 12.4.",
    )


class DataShape(serializers.Serializer[Any]):
    """A dataset that each run reads."""

    name = serializers.CharField(
        max_length=120, help_text="Name of a dataset of the tenant, or of the nearest tenant above."
    )
    read = serializers.CharField(
        required=False, allow_null=True, help_text="How much of it, such as 20Gi; by default all of it."
    )
    stage = serializers.BooleanField(
        required=False,
        help_text="Whether the job waits, without GPUs, until the dataset is copied to a storage of its cluster; by default, no.",
    )


class TopologyShape(serializers.Serializer[Any]):
    level = serializers.ChoiceField(choices=LEVEL_WORDS, default="cluster")
    mode = serializers.ChoiceField(choices=MODES, default="preferred")


class RetriesShape(serializers.Serializer[Any]):
    """The number of further attempts of a job, by what ended the previous one."""

    preempted = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, default=USUAL_RETRIES)
    node_lost = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, default=USUAL_RETRIES)
    spot = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, default=USUAL_RETRIES)
    infrastructure = serializers.IntegerField(min_value=0, max_value=MOST_RETRIES, default=USUAL_RETRIES)
    program = serializers.IntegerField(
        min_value=0, max_value=MOST_RETRIES, default=0, help_text="After the program's own failure."
    )


class PlacementWishShape(serializers.Serializer[Any]):
    """Fields for a job's placement, besides its pods or its manifest."""

    listed: ClassVar = tuple(field for field in JOB_FIELDS if field.is_beside_manifest)
    """Its fields in the table of job fields. Only the shapes of parts are declared in the class."""
    constraints = ConstraintsShape(required=False)
    topology = TopologyShape(required=False)
    data = serializers.ListField(  # type: ignore[assignment]  # the stubs know DRF's own `data`
        child=DataShape(),
        max_length=spec.MAX_DATASETS,
        required=False,
        help_text="Placement counts the cost of moving it.",
    )
    throughput = serializers.DictField(
        child=serializers.FloatField(),
        required=False,
        help_text="How fast the job works, by GPU model; only ratios matter. Run times refer to the slowest model.",
    )
    retries = RetriesShape(required=False)
    failure_rules = serializers.ListField(child=RuleShape(), max_length=MOST_RULES, required=False, help_text=RULES)
    reports = serializers.BooleanField(
        required=False, help_text="Whether its runs may report progress and checkpoints; default false."
    )
    artifacts = serializers.ListField(
        child=DeclaredArtifactShape(),
        max_length=MOST_ARTIFACTS,
        required=False,
        help_text="What its runs will write and announce; needs `reports`.",
    )
    elastic = ElasticShape(required=False)

    session = SessionShape(required=False, help_text="Whether users open it in their browser, and how.")

    def get_fields(self) -> dict[str, AnyField]:
        """The fields declared outside the table, then those of the table in its order."""
        declared = super().get_fields()
        listed = {each.name: declared.get(each.name) or _field(each) for each in self.listed}
        return {name: field for name, field in declared.items() if name not in listed} | listed


def _field(listed: JobField) -> AnyField:
    """The OpenAPI shape of a field that is not a part."""
    more: dict[str, Any] = {"help_text": listed.description} if listed.description else {}
    if listed.default is None:
        more |= {"required": False, "allow_null": True}
    elif not listed.is_required:
        more |= {"default": listed.default}
    match listed.kind:
        case Whole(least, most):
            return serializers.IntegerField(min_value=least, max_value=most, **more)
        case Choice(options):
            return serializers.ChoiceField(choices=list(options), **more)
        case Text(most_bytes=longest):
            return serializers.CharField(max_length=longest, **more)
        case Part():
            raise LookupError(f"declare the shape of {listed.name}")


class JobSpecShape(PlacementWishShape):
    listed = JOB_FIELDS
    tenant = serializers.CharField(help_text="Path, such as acme/research/vision.")
    pod_sets = serializers.ListField(child=PodSetShape(), min_length=1, max_length=spec.MAX_POD_SETS)
    labels = serializers.DictField(child=serializers.CharField(max_length=63), required=False)


class ManifestShape(PlacementWishShape):
    """A `batch/v1` Job. The gateway accepts only allowlisted fields and renders its own Job from them."""

    tenant = serializers.CharField(help_text="Path, such as acme/research/vision.")
    manifest = serializers.DictField()


class BulkItemShape(JobSpecShape):
    tenant = serializers.CharField(required=False)
    idempotency_key = serializers.CharField(required=False, max_length=200)


class BulkShape(serializers.Serializer[Any]):
    tenant = serializers.CharField(required=False, help_text="For items that name none.")
    jobs = serializers.ListField(child=BulkItemShape(), min_length=1, max_length=MAX_JOBS)


class CostPartShape(MoneyShape):
    not_charged = serializers.CharField(help_text="Not in the amount: infrastructure lost this work.")


class CostShape(CostPartShape):
    provisional = serializers.BooleanField(help_text="True while it runs or its usage is not complete yet.")
    unpriced = serializers.BooleanField(help_text="True if part of it had no price; that part is not in the amount.")
    beside = CostPartShape(many=True, help_text="In other currencies, if prices in several applied.")


class ObjectShape(serializers.Serializer[Any]):
    api_version = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    uid = serializers.CharField(allow_null=True)
    pods = serializers.IntegerField(
        help_text="The number of pods that run at the same time; of an elastic job what was chosen."
    )


class WhereShape(serializers.Serializer[Any]):
    flavor = serializers.CharField()
    domain = serializers.CharField(help_text="Path below the cluster: zone/block/rack.")


class JobReasonShape(serializers.Serializer[Any]):
    """Why a job waits or ended; empty while it runs, and after a success that announced all required artifacts."""

    code = serializers.ChoiceField(choices=REASON_CODES, allow_blank=True)
    message = serializers.CharField()


class AttemptShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    job = serializers.UUIDField()
    cluster = serializers.CharField()
    state = serializers.ChoiceField(choices=ATTEMPT_STATES)
    object = ObjectShape(allow_null=True)
    objects = ObjectShape(many=True)
    placement = WhereShape()
    unit_price = MoneyShape(allow_null=True)
    estimate = EstimateShape(allow_null=True)
    reserved_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    end_reason = serializers.ChoiceField(choices=REASON_CODES, allow_null=True)
    end_message = serializers.CharField(allow_null=True)
    lost_seconds = serializers.IntegerField(
        allow_null=True, help_text="How much of its work the next attempt repeats; null: it was not interrupted."
    )
    failure = FailureShape(allow_null=True, help_text="Why it failed, and what follows; null: it did not fail.")


class JobLinksShape(serializers.Serializer[Any]):
    self = serializers.CharField()
    attempts = serializers.CharField()
    events = serializers.CharField()
    explanation = serializers.CharField()
    logs = serializers.CharField()
    cancel = serializers.CharField()
    suspend = serializers.CharField()
    resume = serializers.CharField()
    reports = serializers.CharField()
    artifacts = serializers.CharField()


class JobShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=JOB_STATES)
    reason = JobReasonShape()
    labels = serializers.DictField(child=serializers.CharField())
    spec = JobSpecShape()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    suspend_requested_at = serializers.DateTimeField(allow_null=True, help_text="When a user suspended it, if so.")
    pending_stop = PendingStopShape(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)
    progress = ProgressShape(allow_null=True, help_text="As its newest attempt reported it.")
    artifacts = JobArtifactShape(many=True, help_text="Those that it declares, with what its runs announced.")
    failure = FailureShape(allow_null=True, help_text="Of its newest attempt.")
    attempt = AttemptShape(allow_null=True)
    cost = CostShape()
    links = JobLinksShape()


class JobLineLinksShape(serializers.Serializer[Any]):
    self = serializers.CharField()


class JobLineShape(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    tenant = serializers.CharField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=JOB_STATES)
    created_at = serializers.DateTimeField()
    links = JobLineLinksShape()


class BulkAnswerItemShape(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    status = serializers.IntegerField()
    job = JobLineShape(required=False)
    problem = ProblemShape(required=False)
    replayed = serializers.BooleanField(required=False)


class BulkAnswerShape(serializers.Serializer[Any]):
    items = BulkAnswerItemShape(many=True)


class EventShape(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    message = serializers.CharField()
    attempt = serializers.UUIDField(allow_null=True)


class WhyNotShape(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    code = serializers.ChoiceField(choices=REASON_CODES)
    message = serializers.CharField()
    for_good = serializers.BooleanField()


class RuntimeShape(serializers.Serializer[Any]):
    p10_seconds = serializers.IntegerField(help_text="One run in ten is shorter.")
    p50_seconds = serializers.IntegerField()
    p90_seconds = serializers.IntegerField(help_text="Nine runs in ten are shorter.")
    runs = serializers.IntegerField(help_text="The number of earlier runs like it.")
    basis = serializers.ChoiceField(
        choices=["job", "name", "pods", "estimate"], help_text="What those runs share with it."
    )
    message = serializers.CharField()


class ExpectedStartShape(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    cluster = serializers.CharField()
    message = serializers.CharField()


class HolderShape(serializers.Serializer[Any]):
    """A part of what a limit counts."""

    tenant = serializers.CharField(allow_null=True, help_text="Null: all tenants together that you cannot see.")
    own = serializers.BooleanField(help_text="Whether it is that of the job's tenant, or of one above it.")
    direct = serializers.BooleanField(help_text="Held right at the limit, by work without a limit in between.")
    held = serializers.CharField()
    kept = serializers.CharField(help_text="Guaranteed to it and not held.")
    borrowed = serializers.CharField(help_text="What of `held` is above its nominal amount.")
    nominal = serializers.CharField(allow_null=True)


class QuotaInTheWayShape(serializers.Serializer[Any]):
    """A limit that the job waits for. `held` and `kept` of the holders add up to its `held`."""

    tenant = serializers.CharField()
    resource = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())
    nominal = serializers.CharField()
    held = serializers.CharField()
    lacking = serializers.CharField(help_text="How much must become free there.")
    reserved = serializers.CharField(help_text="What is kept from the job for reservations, beside what is held.")
    reserved_from = serializers.DateTimeField(allow_null=True, help_text="From when on; null if nothing is.")
    holders = HolderShape(many=True)


class ExplanationShape(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    state = serializers.ChoiceField(choices=JOB_STATES)
    reason = JobReasonShape()
    considered_at = serializers.DateTimeField()
    expected_start = ExpectedStartShape(allow_null=True)
    runtime = RuntimeShape(allow_null=True)
    clusters = WhyNotShape(many=True)
    quota = QuotaInTheWayShape(many=True, help_text="The limits that it waits for now, and who holds them.")


class PodLogShape(serializers.Serializer[Any]):
    pod = serializers.CharField()
    container = serializers.CharField(
        help_text="The pod set's name, init-1 for its first init step, or a sidecar's name."
    )
    pod_set = serializers.IntegerField(help_text="Position in the spec.")
    node = serializers.CharField(allow_null=True)
    phase = serializers.CharField()
    text = serializers.CharField()
    truncated = serializers.BooleanField()
    unavailable = serializers.CharField(allow_null=True)


class LogsShape(serializers.Serializer[Any]):
    attempt = serializers.UUIDField(allow_null=True)
    attempt_number = serializers.IntegerField(allow_null=True)
    cluster = serializers.CharField(allow_null=True)
    pods = serializers.IntegerField(help_text="The number of pods; the first few are listed.")
    containers = serializers.ListField(
        child=serializers.CharField(), help_text="The containers that its pods have, if one has init steps or sidecars."
    )
    items = PodLogShape(many=True)
