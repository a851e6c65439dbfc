"""What a job's GPUs must be, besides their model, and what a node's GPUs lack of it.

A fact that is unknown does not meet a need: the absence of a label is no evidence.
"""

from dataclasses import dataclass
from typing import NamedTuple

from clusters.engine.gpu_facts import GpuFacts, Version, version_text

from .reason_codes import ReasonCode

MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class GpuNeeds:
    """The least value of each fact, and the architectures of which a GPU must have one; empty or 0 is no need."""

    memory_mib: int = 0
    architectures: tuple[str, ...] = ()
    compute: Version = ()
    driver: Version = ()
    cuda: Version = ()


class Lack(NamedTuple):
    """A need that a GPU does not meet: a code for programs, and a text for users."""

    code: str
    message: str


def lack_of(needs: GpuNeeds, facts: GpuFacts) -> Lack | None:
    """The first need that the GPU does not meet; None if it meets all."""
    return _memory_lack(needs, facts) or _architecture_lack(needs, facts) or _version_lack(needs, facts)


def _memory_lack(needs: GpuNeeds, facts: GpuFacts) -> Lack | None:
    if not needs.memory_mib or facts.memory_mib >= needs.memory_mib:
        return None
    if not facts.memory_mib:
        return _unknown("the memory", f"at least {_gib(needs.memory_mib)} GiB")
    message = f"{_gib(facts.memory_mib)} GiB of memory is less than {_gib(needs.memory_mib)} GiB"
    return Lack(ReasonCode.GPU_MEMORY_TOO_SMALL, message)


def _architecture_lack(needs: GpuNeeds, facts: GpuFacts) -> Lack | None:
    if not needs.architectures or facts.architecture in needs.architectures:
        return None
    wanted = " or ".join(needs.architectures)
    if not facts.architecture:
        return _unknown("the architecture", wanted)
    return Lack(ReasonCode.GPU_ARCHITECTURE_EXCLUDED, f"architecture {facts.architecture} is not {wanted}")


def _version_lack(needs: GpuNeeds, facts: GpuFacts) -> Lack | None:
    for what, code, least, known in (
        ("compute capability", ReasonCode.GPU_COMPUTE_TOO_LOW, needs.compute, facts.compute),
        ("driver", ReasonCode.GPU_DRIVER_TOO_OLD, needs.driver, facts.driver),
        ("CUDA", ReasonCode.GPU_CUDA_TOO_OLD, needs.cuda, facts.cuda),
    ):
        if least and not is_at_least(known, least):
            is_low = code == ReasonCode.GPU_COMPUTE_TOO_LOW
            if known == least[: len(known)]:
                return _unknown(f"the {what}{'' if is_low else ' version'}", f"at least {version_text(least)}")
            return Lack(
                code, f"{what} {version_text(known)} is {'lower' if is_low else 'older'} than {version_text(least)}"
            )
    return None


def is_at_least(known: Version, least: Version) -> bool:
    """Whether a version is at least another one; False if too little of it is known to say so."""
    for have, need in zip(known, least, strict=False):
        if have != need:
            return have > need
    return len(known) >= len(least) or not any(least[len(known) :])


def _unknown(what: str, wanted: str) -> Lack:
    return Lack(ReasonCode.GPU_FACT_UNKNOWN, f"nothing reports {what}, and the job needs {wanted}")


def _gib(size_mib: int) -> str:
    return f"{size_mib / MIB_PER_GIB:.1f}".removesuffix(".0")
