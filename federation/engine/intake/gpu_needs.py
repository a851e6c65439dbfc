"""What the GPUs of a job must be besides their model: read from the untrusted JSON of its constraints, and written in the
normal form.
"""

import re
from collections.abc import Mapping
from typing import Any

from clusters.engine.gpu_facts import ARCHITECTURE, Version, is_architecture, version_of, version_text
from placement.values.gpu_needs import MIB_PER_GIB, GpuNeeds

from .reading import Fields

MAX_GPU_MEMORY_GIB = 1024
MAX_ARCHITECTURES = 16
MEMORY, ARCHITECTURES = "gpu_memory_gib_min", "gpu_architecture"
VERSIONS = {"gpu_compute_capability_min": "compute", "gpu_driver_min": "driver", "gpu_cuda_min": "cuda"}
"""Each field with the fact that it bounds."""
_EXAMPLES = {"compute": "9.0", "driver": "550.54.15", "cuda": "12.4"}
NEED_FIELDS = frozenset({MEMORY, ARCHITECTURES, *VERSIONS})
_is_version = re.compile(r"[1-9][0-9]{0,5}(\.[0-9]{1,6}){0,2}").fullmatch


def read_gpu_needs(constraints: Fields) -> GpuNeeds | None:
    """The needs in the constraints; None without any."""
    versions = {fact: _read_version(constraints, name, fact) for name, fact in VERSIONS.items()}
    needs = GpuNeeds(
        memory_mib=(constraints.whole(MEMORY, 1, MAX_GPU_MEMORY_GIB) or 0) * MIB_PER_GIB,
        architectures=constraints.names(ARCHITECTURES, is_architecture, ARCHITECTURE, most=MAX_ARCHITECTURES),
        **versions,
    )
    return None if needs == GpuNeeds() else needs


def gpu_needs_json(needs: GpuNeeds | None) -> dict[str, Any]:
    """The normal form: the members of the constraints that are set."""
    if needs is None:
        return {}
    found: dict[str, Any] = {}
    if needs.memory_mib:
        found[MEMORY] = needs.memory_mib // MIB_PER_GIB
    if needs.architectures:
        found[ARCHITECTURES] = list(needs.architectures)
    return found | {name: version_text(least) for name, fact in VERSIONS.items() if (least := getattr(needs, fact))}


def gpu_needs_of(constraints: Mapping[str, Any]) -> GpuNeeds | None:
    """The needs in stored constraints; None without any."""
    if NEED_FIELDS.isdisjoint(constraints):
        return None
    return GpuNeeds(
        memory_mib=constraints.get(MEMORY, 0) * MIB_PER_GIB,
        architectures=tuple(constraints.get(ARCHITECTURES, ())),
        **{fact: version_of(constraints.get(name, "")) for name, fact in VERSIONS.items()},
    )


def _read_version(constraints: Fields, name: str, fact: str) -> Version:
    if constraints.values.get(name) is None:
        return ()
    grammar = f'a version as text, such as "{_EXAMPLES[fact]}"'
    return version_of(constraints.checked(name, _is_version, grammar, most_bytes=24))
