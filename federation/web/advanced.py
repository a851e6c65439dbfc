"""The advanced part of the submit form: each pod's secrets, storages, shared memory, local disk, ports, other resources,
init steps and sidecars, what GPUs must be, places that open later, data, and the throughput on GPU models.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from federation.engine.intake.gpu_needs import ARCHITECTURES, MEMORY, VERSIONS
from foundation.pages import Form
from foundation.problems import FieldError

from .typing_in import pairs, whole_number, words_of

NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
LEGENDS = ("Overflow, first tier", "Overflow, second tier", "Overflow, third tier")
"""The number of tiers in the form; more can be written as JSON."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The names of one tier's controls. The first tier opens immediately, so it has no minutes."""

    legend: str
    minutes: str
    clusters: str
    regions: str


def _tier(row: int) -> Tier:
    name = f"overflow_{row}"
    return Tier(LEGENDS[row], f"{name}_minutes" if row else "", f"{name}_clusters", f"{name}_regions")


TIERS = tuple(_tier(row) for row in range(len(LEGENDS)))
POD_SET = {
    "secrets": "secrets",
    "pull_secret": "pull_secret",
    "mounts": "mounts",
    "networks": "networks",
    "shm": "shm",
    "scratch.size": "scratch",
    "scratch.path": "scratch_path",
    "ports": "ports",
    "resources": "resources",
    "init": "init",
    "sidecars": "sidecars",
}
"""The control of each field of a pod set."""
GPU_NEEDS = (MEMORY, ARCHITECTURES, *VERSIONS)
"""The controls of what GPUs must be, each with the name of its constraint."""
WRITES = "write"
STAGED = "stage"
"""The word behind a storage that makes its mount writable."""
NAMES = (
    *POD_SET.values(),
    *GPU_NEEDS,
    "data",
    "throughput",
    *(name for tier in TIERS for name in (tier.minutes, tier.clusters, tier.regions) if name),
)


def overflow_controls() -> dict[str, str]:
    """The control of each field of a tier."""
    found: dict[str, str] = {}
    for row, tier in enumerate(TIERS):
        path = f"constraints.overflow[{row}]"
        found |= {f"{path}.clusters": tier.clusters, f"{path}.regions": tier.regions}
        found |= {f"{path}.after_seconds": tier.minutes or tier.clusters}
    return found


def is_advanced(form: Form) -> bool:
    """Whether the part has input or a fault."""
    return any(form.values.get(name) or form.errors.get(name) for name in NAMES)


def overflow_of(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tiers up to the last one with input; an empty row between them gets the fault that its
    minutes are missing.
    """
    rows = [
        (
            values.get(tier.minutes, "").strip(),
            words_of(values.get(tier.clusters, "")),
            words_of(values.get(tier.regions, "")),
        )
        for tier in TIERS
    ]
    last = max((number for number, row in enumerate(rows, 1) if any(row)), default=0)
    return [_tier_of(number, *row) for number, row in enumerate(rows[:last])]


def _tier_of(number: int, minutes: str, clusters: list[str], regions: list[str]) -> dict[str, Any]:
    tier: dict[str, Any] = {"clusters": clusters, "regions": regions}
    if not number:
        return {"after_seconds": 0, **tier}
    amount = whole_number(minutes)
    return {"after_seconds": amount * 60 if isinstance(amount, int) else amount or None, **tier}


def local_state_of(values: Mapping[str, str], path: str, errors: list[FieldError]) -> dict[str, Any]:
    """The shared memory, local disk, ports and other resources of the pod set at `path` in the form's values, if any."""
    shm, size, where = (values.get(name, "").strip() for name in ("shm", "scratch", "scratch_path"))
    named = pairs(values.get("ports", ""), f"{path}.ports", errors)
    ports = [{"name": name, "number": whole_number(number)} for name, number in named.items()]
    resources = pairs(values.get("resources", ""), f"{path}.resources", errors)
    scratch = {"size": size, **({"path": where} if where else {})}
    return {
        **({"ports": ports} if ports else {}),
        **({"shm": shm} if shm else {}),
        **({"scratch": scratch} if size or where else {}),
        **({"resources": resources} if resources else {}),
    }


def borrowed_of(values: Mapping[str, str], path: str, errors: list[FieldError]) -> dict[str, Any]:
    """The secrets, storages and networks of the pod set at `path` in the form's values, if any."""
    uses = pairs(values.get("secrets", ""), f"{path}.secrets", errors)
    secrets = [{"secret": name, "file" if where.startswith("/") else "env": where} for where, name in uses.items()]
    mounted = pairs(values.get("mounts", ""), f"{path}.mounts", errors)
    mounts = [_mount(where, text) for where, text in mounted.items()]
    pull_secret = values.get("pull_secret", "").strip()
    networks = words_of(values.get("networks", ""))
    return {
        **({"secrets": secrets} if secrets else {}),
        **({"pull_secret": pull_secret} if pull_secret else {}),
        **({"mounts": mounts} if mounts else {}),
        **({"networks": networks} if networks else {}),
    }


def beside_of(values: Mapping[str, str], path: str, errors: list[FieldError]) -> dict[str, Any]:
    """The init steps and the sidecars of the pod set at `path` in the form's values, if any."""
    init, sidecars = (_lines(values, name, path, errors) for name in ("init", "sidecars"))
    steps = [{"image": words[0], "command": words[1:]} for words in init]
    others = [
        {**dict(zip(("name", "cpu", "memory", "image"), words, strict=False)), "command": words[4:]}
        for words in sidecars
    ]
    return {**({"init": steps} if steps else {}), **({"sidecars": others} if others else {})}


def _lines(values: Mapping[str, str], name: str, path: str, errors: list[FieldError]) -> list[list[str]]:
    """The words of each line, quoted as in a shell."""
    try:
        return [shlex.split(line) for line in values.get(name, "").splitlines() if line.strip()]
    except ValueError:
        errors.append(FieldError(f"{path}.{name}", "bad_format", "a quotation mark is not closed"))
        return []


def _mount(where: str, text: str) -> dict[str, Any]:
    """`datasets`, `datasets/imagenet` for a part of it, or either with ` write` behind it; `fast 200Gi` for a new volume."""
    storage, _, mode = text.partition(" ")
    name, _, sub_path = storage.partition("/")
    if mode.strip()[:1].isdigit():
        return {"storage": name, "path": where, "size": mode.strip(), **({"sub_path": sub_path} if sub_path else {})}
    read_only = False if mode.strip() == WRITES else mode.strip() or True
    return {"storage": name, "path": where, "read_only": read_only, **({"sub_path": sub_path} if sub_path else {})}


def gpu_needs_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The constraints in the form's values that say what GPUs must be, if any."""
    typed_in = {name: text for name in GPU_NEEDS if (text := values.get(name, "").strip())}
    read = {MEMORY: whole_number, ARCHITECTURES: words_of}
    return {name: read[name](text) if name in read else text for name, text in typed_in.items()}


def advanced_of(values: Mapping[str, str], errors: list[FieldError]) -> dict[str, Any]:
    """The data and the throughput in the form's values, if any."""
    data = [_dataset(line.split()) for line in values.get("data", "").splitlines() if line.strip()]
    speeds = pairs(values.get("throughput", ""), "throughput", errors)
    told = {model: float(text) if NUMBER.fullmatch(text) else text for model, text in speeds.items()}
    return {**({"data": data} if data else {}), **({"throughput": told} if told else {})}


def _dataset(words: list[str]) -> dict[str, Any]:
    """`imagenet`, or `imagenet 20Gi` if the job reads only a part; with ` stage` at the end, the job waits for its copy."""
    is_staged = words[1:] != [] and words[-1] == STAGED
    size = " ".join(words[1:-1] if is_staged else words[1:])
    return {"name": words[0], **({"read": size} if size else {}), **({"stage": True} if is_staged else {})}
