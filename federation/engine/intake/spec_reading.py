"""The job spec, read from untrusted JSON.

Reading is strict and complete: every field is typed, bounded and checked against a grammar, and a refusal names all
fields at fault. `read_spec(spec_json(spec), rules) == spec`.
"""

from typing import Any

from federation.engine.failures.rules import Rule

from .artifacts import check_artifacts
from .elastic import checked_elastic
from .job_fields import JOB_FIELD_NAMES, JOB_FIELDS
from .normal_form import encode, spec_json
from .reading import Faults, Fields
from .sessions import check_session
from .spec import LONGEST_BOUNDED_PART, LONGEST_ESCAPE, LONGEST_ITEM, MAX_SPEC_BYTES, InitStep, JobSpec, Rules, Sidecar


def read_spec(value: object, rules: Rules) -> JobSpec:
    """The spec in a JSON object (without its tenant). Raises Refused with every field at fault."""
    faults = Faults()
    fields = Fields(value, "", faults, JOB_FIELD_NAMES)
    found: dict[str, Any] = {}
    for field in JOB_FIELDS:
        if field.is_required or fields.values.get(field.name) is not None:
            found[field.name] = field.read(fields, rules)
    _check_completions(fields, found)
    check_artifacts(fields, found)
    if "elastic" in found:
        found["elastic"] = checked_elastic(fields, found)
    check_session(fields, found)
    spec = JobSpec(**found)
    faults.refuse_if_any()
    _check_size(spec, faults)
    return spec


def _check_completions(fields: Fields, found: dict[str, Any]) -> None:
    pod_sets, completions = found["pod_sets"], found.get("completions")
    if completions is not None and len(pod_sets) > 1:
        fields.fault("completions", "not_allowed", "only a job with one pod set may have completions")
    elif completions is not None and pod_sets and completions < pod_sets[0].count:
        fields.fault("completions", "out_of_range", "must be at least the pod set's count")


def _check_size(spec: JobSpec, faults: Faults) -> None:
    """Checks the size of the spec in its normal form, so that no object exceeds the limit of API servers."""
    if _rough_size(spec) > MAX_SPEC_BYTES and len(encode(spec_json(spec))) > MAX_SPEC_BYTES:
        faults.add("", "too_large", f"the whole spec may have at most {MAX_SPEC_BYTES} bytes")
        faults.refuse_if_any()


def _rough_size(spec: JobSpec) -> int:
    """An upper bound of the size in bytes: every character as an escape, and the maximum for all bounded fields."""
    texts = 0
    for pod_set in spec.pod_sets:
        texts += 2 * LONGEST_BOUNDED_PART + sum(map(len, pod_set.command)) + sum(map(len, pod_set.args))
        texts += sum(len(name) + len(value) for name, value in pod_set.env)
        texts += sum(len(one.storage) + len(one.path) + len(one.sub_path) + LONGEST_ITEM for one in pod_set.mounts)
        texts += sum(len(name) + LONGEST_ITEM for name in pod_set.networks)
        texts += sum(len(one.secret) + len(one.env) + len(one.file) + LONGEST_ITEM for one in pod_set.secrets)
        texts += 2 * (len(pod_set.command) + len(pod_set.args) + 2 * len(pod_set.env))
        texts += sum(len(name) + LONGEST_ITEM for name, _ in pod_set.resources)
        texts += sum(len(port.name) + LONGEST_ITEM for port in pod_set.ports)
        texts += sum(map(_letters_beside, pod_set.init)) + sum(map(_letters_beside, pod_set.sidecars))
        texts += LONGEST_ITEM + (len(pod_set.scratch.path) + LONGEST_ITEM if pod_set.scratch else 0)
    named = spec.constraints.clusters + spec.constraints.exclude_clusters + spec.constraints.regions
    for tier in spec.constraints.overflow:
        named += tier.clusters + tier.regions
        texts += LONGEST_BOUNDED_PART
    texts += sum(len(name) + LONGEST_ITEM for name in spec.constraints.gpu.architectures) if spec.constraints.gpu else 0
    texts += sum(len(need.name) + LONGEST_ITEM for need in spec.data)
    texts += sum(len(one.model) + LONGEST_ITEM for one in spec.throughput)
    texts += sum(len(one.name + one.storage + one.path + one.url) + LONGEST_ITEM for one in spec.artifacts)
    texts += sum(LONGEST_BOUNDED_PART + 2 * _letters(rule) for rule in spec.failure_rules)
    texts += sum(map(len, named)) + sum(len(key) + len(value) for key, value in spec.labels)
    texts += 4 * (len(named) + len(spec.labels)) + 2 * LONGEST_BOUNDED_PART
    return texts * LONGEST_ESCAPE


def _letters_beside(one: InitStep | Sidecar) -> int:
    """The characters of an init step or sidecar, with quotation marks and commas."""
    words = (*one.command, *one.args)
    env = sum(len(name) + len(value) + 4 for name, value in one.env)
    return LONGEST_BOUNDED_PART + sum(map(len, words)) + 2 * len(words) + env


def _letters(rule: Rule) -> int:
    """The characters of its text and patterns, with quotation marks and commas."""
    when = rule.when
    texts = (rule.text, *when.pod_sets, *when.node_taints, *when.messages, *when.log)
    return sum(len(text) + 3 for text in texts) + 12 * (len(when.exit_codes) + len(when.signals))
