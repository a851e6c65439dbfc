"""Pods that will not run however long one waits: what the kubelet says of their containers."""

from datetime import timedelta

HOPELESS = frozenset(
    {
        "InvalidImageName",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
PATIENCE = timedelta(minutes=5)
"""A registry may be away for a moment, and the kubelet asks it again."""


def is_stuck(phase: str, reason: str) -> bool:
    """Whether a pod with this phase and reason waits for what nothing there will bring."""
    return phase == "Pending" and reason.partition(":")[0] in HOPELESS
