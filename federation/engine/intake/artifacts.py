"""The artifacts that a job declares: read from untrusted JSON, checked against its mounts, and written in the normal form."""

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.engine.storages import MOST_PATH, PATH, is_relative
from federation.engine import names
from federation.engine.artifacts import MOST_ARTIFACTS, MOST_URL, URL, Artifact, is_object_url

from .mounts import is_inside
from .reading import Fields
from .spec import DNS_LABEL, PodSet, Rules

ARTIFACT_FIELDS = frozenset(["name", "storage", "path", "url", "required"])


def read_artifacts(fields: Fields, _rules: Rules) -> tuple[Artifact, ...]:
    """The declared artifacts, in their order."""
    found: list[Artifact] = []
    for index, value in enumerate(fields.array("artifacts", most=MOST_ARTIFACTS)):
        given = Fields(value, f"{fields.at('artifacts')}[{index}]", fields.faults, ARTIFACT_FIELDS)
        name = given.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
        if name and any(one.name == name for one in found):
            given.fault("name", "duplicate", "another artifact has this name")
        found.append(_at_its_place(given, name))
    return tuple(found)


def _at_its_place(given: Fields, name: str) -> Artifact:
    required = given.flag("required", default=False)
    has_url, has_storage = (given.values.get(one) is not None for one in ("url", "storage"))
    if has_url == has_storage:
        given.fault(
            "url" if has_url else "storage", "conflict" if has_url else "required", "give either `storage` or `url`"
        )
        return Artifact(name, is_required=required)
    if has_url:
        if given.values.get("path") is not None:
            given.fault("path", "conflict", "a `url` has its path in it")
        url = given.checked("url", is_object_url, URL, most_bytes=MOST_URL)
        return Artifact(name, url=url, is_required=required)
    storage = given.checked("storage", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    return Artifact(name, storage, given.checked("path", is_relative, PATH, most_bytes=MOST_PATH), is_required=required)


def check_artifacts(fields: Fields, found: Mapping[str, Any]) -> None:
    """Checks that the job can write and announce what it declares, once all fields are read."""
    artifacts: Sequence[Artifact] = found.get("artifacts", ())
    if artifacts and not found.get("reports"):
        fields.fault("artifacts", "conflict", "runs announce artifacts in their reports: set `reports` to true")
    for index, artifact in enumerate(artifacts):
        if artifact.storage and artifact.path and not _is_written(artifact, found["pod_sets"]):
            told = "no pod set mounts this part of the storage with `read_only` false, and without a `size`"
            fields.fault(f"artifacts[{index}].path", "not_allowed", told)


def _is_written(artifact: Artifact, pod_sets: Sequence[PodSet]) -> bool:
    return any(
        mount.storage == artifact.storage
        and not mount.is_read_only
        and not mount.size_bytes
        and (not mount.sub_path or is_inside(artifact.path, mount.sub_path))
        for pod_set in pod_sets
        for mount in pod_set.mounts
    )


def artifacts_json(artifacts: Sequence[Artifact]) -> list[dict[str, Any]]:
    """The normal form of the artifacts."""
    return [
        {
            "name": one.name,
            **({"url": one.url} if one.url else {"storage": one.storage, "path": one.path}),
            "required": one.is_required,
        }
        for one in artifacts
    ]
