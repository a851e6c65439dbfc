"""The Secrets of a pod set on its cluster: what is promised when an attempt is placed, and how it is rendered.

Each Secret has a name of random digits, stored before it is first sent: whatever has this name was created by an
earlier call for the same attempt. So the gateway needs no right to read a Secret. It is owned by the pod set's Job, and
the cluster deletes it with the Job. It is immutable.
"""

import base64
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any, TypeAlias
from uuid import UUID

from clusters.engine.secrets import part_of
from federation.engine import names

from .rendering import Identity

VOLUME = "secrets"
REPORT_KEY = "token"
FILE_MODE = 0o440
"""The pods' group may read the files."""
SecretVersion: TypeAlias = tuple[UUID, int]
"""A secret's id and one of its versions."""
PULL_KEY = ".dockerconfigjson"
PULL_TYPE = "kubernetes.io/dockerconfigjson"


def secret_name(random_id: UUID) -> str:
    """The name of a Secret: `swy-s-` and an id in base32, which cannot be guessed."""
    return f"{names.PREFIX}s-{base64.b32encode(random_id.bytes).decode().rstrip('=').lower()}"


def lay_secrets(pod: MutableMapping[str, Any], promised: Mapping[str, Any], among: Collection[str] = ()) -> None:
    """Adds the promised secrets to a rendered pod spec: variables, files, and the secret by which images are pulled. Of
    init steps and sidecars, only those `among` these containers get variables and files.
    """
    if pull := promised.get("pull"):
        pod["imagePullSecrets"] = [{"name": pull["object"]}]
    uses = promised.get("uses", ())
    variables = [_variable(promised["object"], use) for use in uses if "env" in use]
    files = [_file(use) for use in uses if "file" in use]
    beside = [one for one in pod.get("initContainers", ()) if one["name"] in among]
    for container in [*pod["containers"], *beside]:
        container["env"] = [*container.get("env", ()), *variables]
        if files:
            container.setdefault("volumeMounts", []).extend(files)
    if files:
        source = {"secretName": promised["object"], "defaultMode": FILE_MODE}
        pod.setdefault("volumes", []).append({"name": VOLUME, "secret": source})


def lay_report(pod: MutableMapping[str, Any], promised: Mapping[str, Any], url: str) -> None:
    """Adds the address for reports and the promised token to a rendered pod spec, if it may report."""
    if not promised.get("report") or not url:
        return
    source = {"secretKeyRef": {"name": promised["report"]["object"], "key": REPORT_KEY}}
    for container in pod["containers"]:
        container["env"] += [
            {"name": "SWITCHYARD_REPORT_URL", "value": url},
            {"name": "SWITCHYARD_REPORT_TOKEN", "valueFrom": source},
        ]


def versions_of(promised: Mapping[str, Any]) -> set[SecretVersion]:
    """The promised versions."""
    given = [*promised.get("uses", ()), *([promised["pull"]] if promised.get("pull") else ())]
    return {_version(one) for one in given}


def _version(promised: Mapping[str, Any]) -> SecretVersion:
    return UUID(promised["id"]), int(promised["version"])


def secret_manifests(
    promised: Mapping[str, Any],
    namespace: str,
    identity: Identity,
    owner: tuple[str, str],
    values: Mapping[SecretVersion, bytes],
    report_token: bytes = b"",
) -> list[dict[str, Any]]:
    """The Secrets to create for a pod set, owned by its Job (`owner`: name and uid)."""
    found = []
    if uses := promised.get("uses"):
        data = {use["key"]: part_of(values[_version(use)], use.get("part", "")) for use in uses}
        found.append(_secret(promised["object"], "Opaque", data))
    if pull := promised.get("pull"):
        found.append(_secret(pull["object"], PULL_TYPE, {PULL_KEY: values[_version(pull)]}))
    if (report := promised.get("report")) and report_token:
        found.append(_secret(report["object"], "Opaque", {REPORT_KEY: report_token}))
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner[0], "uid": owner[1]}]
    for manifest in found:
        manifest["metadata"] |= {"namespace": namespace, "labels": identity.labels, "ownerReferences": owners}
    return found


def _secret(name: str, kind: str, data: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": kind,
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def _variable(name: str, use: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": use["env"], "valueFrom": {"secretKeyRef": {"name": name, "key": use["key"]}}}


def _file(use: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": VOLUME, "mountPath": use["file"], "subPath": use["key"], "readOnly": True}
