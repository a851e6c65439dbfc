"""The openb trace as values, and the FGD comparison's arrivals (Weng et al., "Beware of Fragmentation", USENIX ATC
2023).
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zstandard

WHOLE = 1000


class TraceError(Exception):
    """A trace file that cannot be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """A kind of pod. `models` is empty if any model is accepted."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Per device."""
    models: frozenset[str]

    @property
    def asked_milli(self) -> int:
        return self.gpus * self.gpu_milli


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        raw = path.read_bytes()
        text = (
            zstandard.ZstdDecompressor().stream_reader(raw).read().decode() if path.suffix == ".zst" else raw.decode()
        )
    except (OSError, zstandard.ZstdError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}") from error
    rows = list(csv.DictReader(io.StringIO(text)))
    missing = [column for column in columns if rows and column not in rows[0]]
    if missing or not rows:
        raise TraceError(f"{path}: line 1: no column {', '.join(missing) or 'at all'}")
    return rows


def _integer(path: Path, line: int, row: dict[str, str], column: str) -> int:
    try:
        return int(float(row[column] or 0))
    except ValueError:
        raise TraceError(f"{path}: line {line}, column {column}: {row[column]!r} is not a number") from None


def read_nodes(path: Path) -> list[TraceNode]:
    """Nodes of a file in the format of `openb_node_list_*`."""
    nodes = []
    for line, row in enumerate(_rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")), 2):
        cpu, memory, gpus = (_integer(path, line, row, column) for column in ("cpu_milli", "memory_mib", "gpu"))
        nodes.append(TraceNode(row["sn"], cpu, memory, gpus, row["model"] if gpus else ""))
    return nodes


def read_pods(path: Path) -> list[TracePod]:
    """Pods of a file in the format of `openb_pod_list_*`, by name. Column `gpu_spec` may be missing: then any model is
    accepted.
    """
    named = []
    for line, row in enumerate(_rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")), 2):
        gpus = _integer(path, line, row, "num_gpu")
        milli = _integer(path, line, row, "gpu_milli") if gpus == 1 else WHOLE * bool(gpus)
        models = frozenset(filter(None, (row.get("gpu_spec") or "").split("|"))) if gpus else frozenset()
        cpu, memory = _integer(path, line, row, "cpu_milli"), _integer(path, line, row, "memory_mib")
        named.append((row["name"], TracePod(cpu, memory, gpus, milli, models)))
    return [pod for _, pod in sorted(named, key=lambda pair: pair[0])]


def arrivals(pods: list[TracePod], capacity_milli: int, ratio: float, rng: np.random.Generator) -> list[TracePod]:
    """The pods shuffled, then thinned or cloned at random until they ask for `ratio` of the capacity."""
    queue = [pods[n] for n in rng.permutation(len(pods))]
    asked = sum(pod.asked_milli for pod in queue)
    if asked > ratio * capacity_milli:
        while asked > ratio * capacity_milli:
            asked -= queue.pop(int(rng.integers(len(queue)))).asked_milli
        return queue
    while True:
        clone = pods[int(rng.integers(len(pods)))]
        if asked + clone.gpu_milli > ratio * capacity_milli:
            return queue
        queue.append(clone)
        asked += clone.asked_milli
