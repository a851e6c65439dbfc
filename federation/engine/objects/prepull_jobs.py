"""Renders the Job that pulls an image to a node: the Job of an attempt, without devices, pinned to the node, and with a command that
does not exist.

So the admission policies of clusters hold it to the same as every other Job. The kubelet pulls the image, checks with the registry
that the namespace may use it, and then cannot start the container: nothing of the image runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.names import LABEL_PREPARATION
from federation.engine.prepulls import DEADLINE

from .job_secrets import lay_secrets
from .rendering import Devices, Identity, render_job, spec_hash, template_patch

PREPULL = "prepull"
"""The value of the label."""
COMMAND = "/switchyard/nothing-to-run"
CPU, MEMORY = "10m", "16Mi"


def pull_spec(image: str) -> Mapping[str, Any]:
    """The stored spec of a pull of this image."""
    pod = {"name": PREPULL, "count": 1, "image": image, "cpu": CPU, "memory": MEMORY, "command": [COMMAND]}
    body = {"name": PREPULL, "pod_sets": [pod], "deadline_seconds": int(DEADLINE.total_seconds())}
    return spec_json(read_spec(body, Rules()))


def pull_hash(image: str) -> str:
    """The spec hash of a pull of this image."""
    return spec_hash(pull_spec(image))


def labels_of(identity: Identity) -> dict[str, str]:
    """The labels of the Job and its pod: its attempt is the pull, and its job the policy."""
    return {**identity.labels, LABEL_PREPARATION: PREPULL}


def render_pull(
    image: str,
    node: str,
    identity: Identity,
    tolerations: Sequence[Mapping[str, str]],
    promised: Mapping[str, Any],
) -> dict[str, Any]:
    """The suspended Job that pulls the image to the node, by the `promised` secret if there is one."""
    manifest = render_job(pull_spec(image), 0, identity, Devices())
    template = manifest["spec"]["template"]
    manifest["metadata"]["labels"] = template["metadata"]["labels"] = labels_of(identity)
    pod = template["spec"] | template_patch({}, [node], must_keep=True)["spec"]
    if tolerations:
        pod["tolerations"] = list(tolerations)
    lay_secrets(pod, promised)
    template["spec"] = pod
    return manifest
