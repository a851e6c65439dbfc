"""What is known of a GPU besides its model: memory, architecture, compute capability, driver and CUDA version.

Sources: the labels of NVIDIA's GPU feature discovery (nvidia.com/*), and the attributes of devices that a driver publishes
(dynamic resource allocation). A fact that neither reports is unknown, whatever the model usually has.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]
"""Its numbers, the most significant first: `550.54.15` is (550, 54, 15)."""

MEMORY_LABEL = "nvidia.com/gpu.memory"
FAMILY_LABEL = "nvidia.com/gpu.family"
COMPUTE_LABELS = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
DRIVER_LABELS = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")
CUDA_LABELS = ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor")
"""The CUDA version that the driver supports, not that of an image."""
FACT_ATTRIBUTES = ("architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion")
ARCHITECTURE = "lower-case letters, digits and '-', such as hopper or ada-lovelace"
is_architecture = re.compile(r"[a-z][a-z0-9-]{0,30}").fullmatch
_NUMBER = re.compile(r"[0-9]{1,6}")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,2}")
_MOST_MIB = 10**8


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What is known of one unit of a flavor on one node; a value that is empty or 0 is unknown."""

    memory_mib: int = 0
    architecture: str = ""
    compute: Version = ()
    driver: Version = ()
    cuda: Version = ()

    def stored(self) -> dict[str, object]:
        """The known facts as JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}


NO_FACTS = GpuFacts()


def facts_of(stored: Mapping[str, object]) -> GpuFacts:
    """The facts in the JSON of `GpuFacts.stored`."""
    return GpuFacts(**{name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()})  # type: ignore[arg-type]  # as they were stored


def labelled(labels: Mapping[str, str], memory_label: str = MEMORY_LABEL) -> GpuFacts:
    """The facts that labels report. `memory_label` is the one for the memory of one unit; empty: none reports it."""
    family = labels.get(FAMILY_LABEL, "")
    return GpuFacts(
        memory_mib=_memory(labels.get(memory_label, "")),
        architecture=family if is_architecture(family) else "",
        compute=_numbers(labels, COMPUTE_LABELS),
        driver=_numbers(labels, DRIVER_LABELS),
        cuda=_numbers(labels, CUDA_LABELS),
    )


def published(attributes: Mapping[str, str], memory_mib: int) -> GpuFacts:
    """The facts that a device's attributes and memory report."""
    architecture, *versions = (attributes.get(name, "") for name in FACT_ATTRIBUTES)
    spelled = architecture.lower().replace(" ", "-")
    if not is_architecture(spelled) or architecture not in spellings(spelled):
        spelled = ""
    compute, driver, cuda = (version_of(text) for text in versions)
    return GpuFacts(memory_mib, spelled, compute, driver, cuda)


def spellings(architecture: str) -> tuple[str, str]:
    """An architecture as labels have it, and as devices' attributes do: `ada-lovelace`, `Ada Lovelace`."""
    return architecture, " ".join(word.capitalize() for word in architecture.split("-"))


def version_of(text: str) -> Version:
    """The numbers of a version with up to three of them; empty if the text is not one."""
    return tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else ()


def version_text(version: Version) -> str:
    """The version as users write it."""
    return ".".join(map(str, version))


def joined(one: GpuFacts, other: GpuFacts) -> GpuFacts:
    """What is known of both devices: the lesser value of each fact, and nothing where one is unknown or they have no
    order and differ.
    """
    least = {
        name: min(getattr(one, name), getattr(other, name)) for name in ("memory_mib", "compute", "driver", "cuda")
    }
    return replace(one, **least, architecture=one.architecture if one.architecture == other.architecture else "")


def _memory(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_MIB)) else 0


def _numbers(labels: Mapping[str, str], keys: tuple[str, ...]) -> Version:
    """The numbers of a version of which each has a label, up to the first without a number; none without the second."""
    found: list[int] = []
    for key in keys:
        text = labels.get(key, "")
        if not _NUMBER.fullmatch(text):
            break
        found.append(int(text))
    return tuple(found) if len(found) > 1 else ()
