"""Amounts and requests as the texts of reasons have them."""

from placement.values.gpu_needs import MIB_PER_GIB
from placement.values.model import PodSetRequest
from quotas.engine.amounts import JOBS

ONE = 1000
"""One core, or one GPU, in thousandths."""


def quantity(resource: str, amount: int) -> str:
    """An amount of a quota resource in the unit that users use."""
    if resource == "memory":
        return f"{number(amount, MIB_PER_GIB)} GiB"
    if resource == JOBS:
        return f"{amount} {'job' if amount == 1 else 'jobs'}"
    unit = "core" if resource == "cpu" else "GPU"
    return f"{number(amount, ONE)} {unit if amount == ONE else f'{unit}s'}"


def number(amount: int, per_unit: int) -> str:
    return f"{amount / per_unit:.3f}".rstrip("0").rstrip(".")


def kind_of(pod_set: PodSetRequest) -> str:
    """The kind of device that a pod set requests: `H100-80GB or A100-80GB`, `MIG slice 1g.10gb of any GPU`."""
    gpu = pod_set.gpu
    if gpu is None:
        return "node"
    models = " or ".join(gpu.models) or (f"{gpu.vendor} GPU" if gpu.vendor else "")
    if gpu.mig:
        return f"MIG slice {gpu.mig} of {models or 'any GPU'}"
    if gpu.fraction_milli:
        return f"time-sliced {models or 'GPU'}"
    return models or "GPU"


def asked_of(pod_set: PodSetRequest) -> str:
    """What one pod requests: `8 H100-80GB`, `8 GPUs`, `0.5 of a time-sliced GPU`, `16 cores and 64 GiB`."""
    gpu = pod_set.gpu
    if gpu is None:
        return f"{quantity('cpu', pod_set.cpu_millicores)} and {quantity('memory', pod_set.memory_mib)}"
    if gpu.fraction_milli:
        return f"{number(gpu.fraction_milli, 1000)} of a {kind_of(pod_set)}"
    kind = kind_of(pod_set)
    return f"{gpu.count} {kind}s" if gpu.count > 1 and kind.endswith("GPU") and not gpu.mig else f"{gpu.count} {kind}"
