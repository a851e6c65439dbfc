"""The fields of a job, in one table: reader, normal form, OpenAPI shape, form and job page are made from it.

A new field is an attribute of `spec.JobSpec`, which has its type and its default, and an entry at the same place here. A
structured field (a `Part`) brings its reader and its normal form, and has its shape in `api/shapes.py`.
"""

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any

from federation.engine import names
from federation.engine.relocation import MOVES_POLICIES
from federation.engine.retries import retries_json
from placement.values.strategies import STRATEGY_NAMES

from .artifacts import artifacts_json, read_artifacts
from .elastic import elastic_json, read_elastic
from .failure_rules import read_rules, rules_json
from .labels import read_labels
from .places import constraints_json, read_constraints, read_topology, topology_json
from .pods import pod_sets_json, read_pod_sets
from .reading import Fields
from .sessions import read_session, session_json
from .spec import DNS_LABEL, MAX_COMPLETIONS, MAX_SECONDS, ON_CLUSTER_LOST, JobSpec, Rules
from .work import data_json, read_data, read_reports, read_retries, read_throughput, throughput_json

_DEFAULTS = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(JobSpec)
}


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    options: Collection[str]


@dataclass(frozen=True, slots=True)
class Text:
    """A string that a grammar accepts. `grammar` describes it to users."""

    is_good: Callable[[str], object]
    grammar: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """A value of its own type. Its reader is called only if the field is required or present."""

    read: Callable[[Fields, Rules], Any]
    json: Callable[[Any], Any]


class Section(StrEnum):
    """A group of controls in the submit form."""

    PLACEMENT = "placement"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Control:
    """How the submit form asks for a field. What users enter there depends on its kind, and on its unit."""

    section: Section
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class JobField:
    """A field of a job. Fields without a control are not in the submit form, or have one written by hand."""

    name: str
    kind: Whole | Choice | Text | Part
    description: str = ""
    """For the OpenAPI description, which has the bounds already."""
    control: Control | None = None
    is_beside_manifest: bool = True
    """Whether it is allowed beside `manifest`. It is not if a manifest has a field of the same meaning."""
    is_always_stored: bool = False
    """Whether the normal form has it even if it is not set. False for new fields: specs without them keep their bytes."""
    steers_placement: bool = False
    """Whether `normal_form` gives it to placement, if set: in the shape, and as the attribute of this name of a
    `JobRequest`. The fields that all shapes have are listed there.
    """

    @property
    def default(self) -> Any:
        """The value of a job that does not set it; MISSING if all must."""
        return _DEFAULTS[self.name]

    @property
    def is_required(self) -> bool:
        """Whether every job must set it."""
        return self.default is MISSING

    def read(self, given: Fields, rules: Rules) -> Any:
        """The value in untrusted JSON. After a fault it is a harmless one."""
        match self.kind:
            case Whole(least, most):
                return given.whole(self.name, least, most)
            case Choice(options):
                return given.choice(self.name, options, "")
            case Text(is_good, grammar, most_bytes):
                return given.checked(self.name, is_good, grammar, most_bytes=most_bytes)
            case Part(read):
                return read(given, rules)

    def json(self, value: Any) -> Any:
        """The normal form of a value."""
        return self.kind.json(value) if isinstance(self.kind, Part) else value


JOB_FIELDS: tuple[JobField, ...] = (
    JobField(
        "name", Text(names.dns_label, DNS_LABEL, names.MAX_LABEL), is_beside_manifest=False, is_always_stored=True
    ),
    JobField("pod_sets", Part(read_pod_sets, pod_sets_json), is_beside_manifest=False, is_always_stored=True),
    JobField("completions", Whole(1, MAX_COMPLETIONS), is_beside_manifest=False, is_always_stored=True),
    JobField(
        "estimated_seconds",
        Whole(1, MAX_SECONDS),
        control=Control(
            Section.TIME,
            "Expected run time, minutes",
            hint="Helps placement. The job is not stopped if it takes longer.",
        ),
        is_always_stored=True,
    ),
    JobField(
        "checkpoint_seconds",
        Whole(1, MAX_SECONDS),
        description="How often it writes a checkpoint from which its next run continues; null: never.",
        control=Control(
            Section.TIME,
            "Time between checkpoints, minutes",
            hint="An interruption loses at most this much work. Leave empty if the job writes none.",
        ),
        is_always_stored=True,
        steers_placement=True,
    ),
    JobField(
        "deadline_seconds",
        Whole(1, MAX_SECONDS),
        control=Control(
            Section.TIME,
            "Deadline, minutes",
            hint="The job is stopped after this time. Leave empty for 24 hours.",
        ),
        is_beside_manifest=False,
        is_always_stored=True,
    ),
    JobField("strategy", Choice(STRATEGY_NAMES), control=Control(Section.PLACEMENT, "Strategy"), is_always_stored=True),
    JobField(
        "priority_class",
        Text(names.dns_label, DNS_LABEL, names.MAX_LABEL),
        description="A priority class that you may use in the tenant. If you set none, the tenant's default applies.",
        is_always_stored=True,
    ),
    JobField("constraints", Part(read_constraints, constraints_json), is_always_stored=True),
    JobField("topology", Part(read_topology, topology_json), is_always_stored=True),
    JobField("on_cluster_lost", Choice(ON_CLUSTER_LOST), is_always_stored=True),
    JobField("labels", Part(read_labels, dict), is_beside_manifest=False, is_always_stored=True),
    JobField("data", Part(read_data, data_json), steers_placement=True),
    JobField(
        "stage_within_seconds",
        Whole(1, MAX_SECONDS),
        description="How long it waits at most for the copies of its data (`data[].stage`); then it is placed without; null: an hour.",
    ),
    JobField("throughput", Part(read_throughput, throughput_json), steers_placement=True),
    JobField("retries", Part(read_retries, retries_json)),
    JobField("failure_rules", Part(read_rules, rules_json)),
    JobField("reports", Part(read_reports, bool)),
    JobField(
        "moves",
        Choice(MOVES_POLICIES),
        description="Whether the gateway may move it, from a checkpoint: when it would soon be stopped where it runs, or would "
        "miss `finish_within_seconds`; and when it would cost less elsewhere.",
        control=Control(
            Section.PLACEMENT,
            "Moves to another place",
            hint="When needed: before its cluster is drained, its node goes away, or it would finish too late. When cheaper: also "
            "where it costs less.",
        ),
        steers_placement=True,
    ),
    JobField(
        "finish_within_seconds",
        Whole(1, MAX_SECONDS),
        description="By when it is to have finished, from its submission. It runs on spot capacity only as long as that is in "
        "time even after an interruption. It is not stopped then; null: no such time.",
        control=Control(
            Section.TIME,
            "Finish within, minutes",
            hint="From now. The job runs on spot capacity only while that leaves enough time. It is not stopped then.",
        ),
        steers_placement=True,
    ),
    JobField("artifacts", Part(read_artifacts, artifacts_json)),
    JobField("elastic", Part(read_elastic, elastic_json), steers_placement=True),
    JobField("session", Part(read_session, session_json)),
)
JOB_FIELD_NAMES = frozenset(field.name for field in JOB_FIELDS)
BESIDE_MANIFEST = tuple(field.name for field in JOB_FIELDS if field.is_beside_manifest)
"""Fields of a spec that are allowed beside `manifest`."""
