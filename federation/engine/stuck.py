"""Detects pods that will never run, from the kubelet's reasons for their containers."""

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
"""The wait before such a pod counts as stuck: a registry may fail briefly, and the kubelet retries."""


def is_stuck(phase: str, reason: str) -> bool:
    """Whether a pod with this phase and reason waits for something that will not happen on its cluster."""
    return phase == "Pending" and reason.partition(":")[0] in HOPELESS
