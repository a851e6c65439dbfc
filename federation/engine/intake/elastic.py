"""The number of pods that a job may run with: read from untrusted JSON, written in the normal form, and the stored spec of a
run with the number that was chosen for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from federation.engine import names
from placement.values.elastic import Elastic

from .reading import Fields
from .spec import DNS_LABEL, MAX_COUNT, ElasticPods, PodSet, Rules

ELASTIC_FIELDS = frozenset(["pod_set", "min_count", "grow"])


def read_elastic(fields: Fields, _rules: Rules) -> ElasticPods:
    """The elastic pod set by name, empty if it is not given, and its fewest pods."""
    given = Fields(fields.values["elastic"], fields.at("elastic"), fields.faults, ELASTIC_FIELDS)
    name = ""
    if given.values.get("pod_set") is not None:
        name = given.checked("pod_set", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    fewest = given.whole("min_count", 1, MAX_COUNT, required=True) or 1
    return ElasticPods(name, fewest, given.flag("grow", default=False))


def checked_elastic(fields: Fields, found: Mapping[str, Any]) -> ElasticPods | None:
    """The elastic pod set with its name, checked once all fields are read."""
    elastic: ElasticPods | None = found.get("elastic")
    pod_sets: Sequence[PodSet] = found["pod_sets"]
    if elastic is None or not pod_sets:
        return None
    if not elastic.pod_set and len(pod_sets) > 1:
        fields.fault("elastic.pod_set", "required", "name the pod set, since the job has several")
        return None
    name = elastic.pod_set or pod_sets[0].name
    own = next((one for one in pod_sets if one.name == name), None)
    if own is None:
        fields.fault("elastic.pod_set", "unknown_value", "the job has no pod set of this name")
    elif elastic.min_count > own.count:
        fields.fault("elastic.min_count", "out_of_range", "must be at most the pod set's count")
    if elastic.grow and not found.get("checkpoint_seconds") and not found.get("reports"):
        told = (
            "a run grows only from a checkpoint: set `checkpoint_seconds`, or `reports` if it reports its checkpoints"
        )
        fields.fault("elastic.grow", "conflict", told)
    return ElasticPods(name, elastic.min_count, elastic.grow)


def elastic_json(elastic: ElasticPods) -> dict[str, Any]:
    """The normal form."""
    own = {"pod_set": elastic.pod_set, "min_count": elastic.min_count}
    return {**own, "grow": True} if elastic.grow else own


def elastic_of(stored: Mapping[str, Any]) -> Elastic | None:
    """What placement sees of it; None for a job of one size."""
    told = stored.get("elastic")
    if told is None:
        return None
    pod_sets = stored["pod_sets"]
    position = next(number for number, one in enumerate(pod_sets) if one["name"] == told["pod_set"])
    return Elastic(position, told["min_count"], pod_sets[position]["count"])


def spec_of_run(stored: Mapping[str, Any], pods: Sequence[int]) -> Mapping[str, Any]:
    """The stored spec with the number of pods of each set that a run has. If all pods of the job had to complete once, all of the
    run have to.
    """
    elastic = elastic_of(stored)
    if elastic is None:
        return stored
    pod_sets = list(stored["pod_sets"])
    own = pod_sets[elastic.position]
    pod_sets[elastic.position] = {**own, "count": pods[elastic.position]}
    completions = None if stored["completions"] == own["count"] else stored["completions"]
    return {**stored, "pod_sets": pod_sets, "completions": completions}
