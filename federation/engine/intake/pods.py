"""The pod sets of a job spec: read from untrusted JSON, and written in the normal form."""

from typing import Any

from federation.engine import names
from placement.values.model import GpuRequest
from placement.values.quantities import NotAQuantity, cpu_text, memory_text, millicores

from .init_and_sidecars import init_and_sidecars_json, read_init, read_sidecars
from .local_state import local_state_json, read_ports, read_scratch, read_shm
from .mounts import mounts_json, read_mounts
from .networks import networks_json, read_networks
from .programs import read_cpu, read_memory, read_program
from .reading import Faults, Fields
from .resources import read_resources, resources_json
from .secrets import read_pull_secret, read_secrets, secrets_json
from .spec import (
    DNS_LABEL,
    MAX_COUNT,
    MAX_GPUS_PER_POD,
    MAX_POD_SETS,
    WHOLE_GPU_MILLI,
    PodSet,
    Rules,
)

POD_SET_FIELDS = frozenset(
    [
        *("name", "count", "image", "command", "args", "env", "cpu", "memory", "gpu", "ports", "shm", "scratch"),
        *("mounts", "networks", "secrets", "pull_secret", "resources", "init", "sidecars"),
    ]
)
GPU_FIELDS = frozenset(["count", "models", "mig", "fraction", "vendor"])
GPU_VENDORS = ("nvidia", "amd", "intel", "google")


def read_pod_sets(fields: Fields, rules: Rules) -> tuple[PodSet, ...]:
    """The pod sets, with unique names."""
    pod_sets = tuple(
        _read_pod_set(item, f"pod_sets[{index}]", fields.faults, rules)
        for index, item in enumerate(fields.array("pod_sets", least=1, most=MAX_POD_SETS))
    )
    _check_names(pod_sets, fields)
    return pod_sets


def pod_sets_json(pod_sets: tuple[PodSet, ...]) -> list[dict[str, Any]]:
    """The normal form of the pod sets."""
    return [_pod_set_json(pod_set) for pod_set in pod_sets]


def _check_names(pod_sets: tuple[PodSet, ...], fields: Fields) -> None:
    seen: set[str] = set()
    for index, pod_set in enumerate(pod_sets):
        if pod_set.name and pod_set.name in seen:
            fields.fault(f"pod_sets[{index}].name", "duplicate", "another pod set has this name")
        seen.add(pod_set.name)


def _read_pod_set(value: object, path: str, faults: Faults, rules: Rules) -> PodSet:
    fields = Fields(value, path, faults, POD_SET_FIELDS)
    program = read_program(fields, rules)
    cpu_millicores, memory_bytes = read_cpu(fields), read_memory(fields)
    scratch = read_scratch(fields)
    mounts = read_mounts(fields, [scratch.path] if scratch else [])
    secrets = read_secrets(
        fields,
        [name for name, _ in program.env],
        [*([scratch.path] if scratch else []), *(mount.path for mount in mounts)],
    )
    name = fields.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
    init = read_init(fields, rules, cpu_millicores, memory_bytes, secrets)
    return PodSet(
        name=name,
        count=fields.whole("count", 1, MAX_COUNT, 1) or 1,
        image=program.image,
        cpu_millicores=cpu_millicores,
        memory_bytes=memory_bytes,
        command=program.command,
        args=program.args,
        env=program.env,
        gpu=_read_gpu(fields),
        ports=read_ports(fields),
        shm_bytes=read_shm(fields, memory_bytes),
        scratch=scratch,
        mounts=mounts,
        networks=read_networks(fields),
        secrets=secrets,
        pull_secret=read_pull_secret(fields),
        resources=read_resources(fields, rules.resources),
        init=init,
        sidecars=read_sidecars(fields, rules, name, init, secrets),
    )


def _read_gpu(fields: Fields) -> GpuRequest | None:
    if fields.values.get("gpu") is None:
        return None
    gpu = Fields(fields.values["gpu"], fields.at("gpu"), fields.faults, GPU_FIELDS)
    models = gpu.names("models", names.gpu_model, "a GPU model such as H100 or H100-80GB", most=32)
    vendor = gpu.choice("vendor", GPU_VENDORS, "")
    if gpu.values.get("fraction") is not None:
        for other in ("mig", "count"):
            if gpu.values.get(other) is not None:
                gpu.fault(other, "not_allowed", "a fraction of a GPU cannot have mig or count")
        return GpuRequest(1, models, fraction_milli=_read_fraction(gpu), vendor=vendor)
    mig = ""
    if gpu.values.get("mig") is not None:
        mig = gpu.checked("mig", names.mig_profile, "a MIG profile such as 1g.10gb", most_bytes=32)
    count = gpu.whole("count", 1, MAX_GPUS_PER_POD, 1 if mig else None, required=not mig)
    return GpuRequest(count or 1, models, mig=mig, vendor=vendor)


def _read_fraction(gpu: Fields) -> int:
    text = gpu.quantity("fraction", most_bytes=8)
    try:
        thousandths = millicores(text) if text.startswith("0.") else 0
    except NotAQuantity:
        thousandths = 0
    if not 0 < thousandths < WHOLE_GPU_MILLI:
        gpu.fault("fraction", "bad_format", 'an amount such as "0.5" or 0.5: more than 0, less than 1, in thousandths')
        return 1
    return thousandths


def _pod_set_json(pod_set: PodSet) -> dict[str, Any]:
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "image": pod_set.image,
        "command": list(pod_set.command),
        "args": list(pod_set.args),
        "env": dict(pod_set.env),
        "cpu": cpu_text(pod_set.cpu_millicores),
        "memory": memory_text(pod_set.memory_bytes),
        "gpu": None if pod_set.gpu is None else _gpu_json(pod_set.gpu),
        **local_state_json(pod_set),
        **({"mounts": mounts_json(pod_set.mounts)} if pod_set.mounts else {}),
        **networks_json(pod_set.networks),
        **secrets_json(pod_set),
        **resources_json(pod_set.resources),
        **init_and_sidecars_json(pod_set),
    }


def _gpu_json(gpu: GpuRequest) -> dict[str, Any]:
    named = {"models": list(gpu.models), **({"vendor": gpu.vendor} if gpu.vendor else {})}
    if gpu.fraction_milli:
        return {"fraction": f"0.{gpu.fraction_milli:03d}".rstrip("0"), **named}
    if gpu.mig:
        return {"mig": gpu.mig, "count": gpu.count, **named}
    return {"count": gpu.count, **named}
