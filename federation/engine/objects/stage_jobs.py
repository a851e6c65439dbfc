"""Renders the Job that copies a dataset to a storage of a cluster, from another one or from an object store: the Job of an attempt,
without devices, with the operator's copy image and a program that is fixed here. Nothing that a user writes becomes part of the
program: paths are parts of volumes (`subPath`), and a digest is an argument of 64 hex digits. A bucket is an argument as well, its
endpoint is a variable, and its access key comes from a Secret into variables that rclone reads.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clusters.engine.secrets import ACCESS_KEY_PARTS, KnownSecret
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.names import LABEL_PREPARATION
from federation.engine.staging import DEADLINE

from .copy_programs import FROM_BUCKET, FROM_FOLDER, REMOTE
from .job_secrets import lay_secrets
from .mounts import lay_mounts
from .rendering import Devices, Identity, render_job, spec_hash

STAGE_IN = "stage-in"
"""The value of the label."""
SOURCE, TARGET = "/switchyard/from", "/switchyard/to"
CPU_MILLICORES, MEMORY_MIB = 1000, 512
NOTHING: Mapping[str, Any] = MappingProxyType({})
_VARIABLE = f"RCLONE_CONFIG_{REMOTE.upper()}"
_KEY_VARIABLES = (f"{_VARIABLE}_ACCESS_KEY_ID", f"{_VARIABLE}_SECRET_ACCESS_KEY")


def stage_spec(image: str, sha256: str, store: Mapping[str, str] = NOTHING) -> Mapping[str, Any]:
    """The stored spec of a copy. `store` is its source in an object store; empty: it mounts its source."""
    wanted = ["--sha256", sha256] if sha256 else []
    source = f"{REMOTE}:{store['bucket']}/{store['path']}" if store else SOURCE
    pod = {
        "name": STAGE_IN,
        "count": 1,
        "image": image,
        "cpu": f"{CPU_MILLICORES}m",
        "memory": f"{MEMORY_MIB}Mi",
        "command": ["/bin/sh", "-c", FROM_BUCKET if store else FROM_FOLDER, STAGE_IN],
        "args": ["--from", source, "--to", TARGET, *wanted],
        "env": _environment(store),
    }
    body = {"name": STAGE_IN, "pod_sets": [pod], "deadline_seconds": int(DEADLINE.total_seconds())}
    return spec_json(read_spec(body, Rules()))


def _environment(store: Mapping[str, str]) -> dict[str, str]:
    """How rclone reaches an object store, without its access key."""
    if not store:
        return {}
    said = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": store["endpoint"], "REGION": store["region"]}
    described = {f"{_VARIABLE}_{name}": text for name, text in said.items()}
    return {**described, "RCLONE_INPLACE": "true"}  # an interrupted copy leaves no files of other names at the target


def promised_key(secret: KnownSecret, object_name: str) -> dict[str, Any]:
    """The version of an access key that a copy gets, in variables from the Secret of this name."""
    known = {"secret": secret.name, "id": str(secret.id), "version": secret.version}
    uses = [
        {**known, "key": part, "part": part, "env": env}
        for part, env in zip(ACCESS_KEY_PARTS, _KEY_VARIABLES, strict=True)
    ]
    return {"object": object_name, "uses": uses}


def stage_hash(image: str, sha256: str, store: Mapping[str, str] = NOTHING) -> str:
    """The spec hash of such a copy."""
    return spec_hash(stage_spec(image, sha256, store))


def labels_of(identity: Identity) -> dict[str, str]:
    """The labels of the Job and its pod: its attempt is the copy, and its job the plan."""
    return {**identity.labels, LABEL_PREPARATION: STAGE_IN}


def render_stage_in(
    image: str,
    sha256: str,
    identity: Identity,
    mounts: Sequence[Mapping[str, Any]],
    store: Mapping[str, str] = NOTHING,
    promised: Mapping[str, Any] = NOTHING,
) -> dict[str, Any]:
    """The suspended Job that copies what is mounted at `SOURCE`, or what is in the object store, to what is mounted at `TARGET`. The
    `promised` access key is that of the store.
    """
    manifest = render_job(stage_spec(image, sha256, store), 0, identity, Devices())
    template = manifest["spec"]["template"]
    manifest["metadata"]["labels"] = template["metadata"]["labels"] = labels_of(identity)
    lay_mounts(template["spec"], mounts)
    lay_secrets(template["spec"], promised)
    return manifest
