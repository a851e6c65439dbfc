"""What the gateway's modules keep in a process's memory: each simulated process has its own, which dies with it."""

from importlib import import_module
from typing import Any

from foundation import caches

from .memory_names import MEMORIES

_PLACES = [(import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in MEMORIES]


class Memory:
    """The memory of one process."""

    def __init__(self) -> None:
        self._kept = [type(getattr(module, name))() for module, name in _PLACES]
        self._cached: list[dict[Any, Any]] = []

    def put_in_place(self) -> None:
        """From now on the modules see the memory of this process."""
        for (module, name), value in zip(_PLACES, self._kept, strict=True):
            setattr(module, name, value)
        caches.exchange(self._cached)

    def take_away(self) -> None:
        """Notes what the process has put there since."""
        self._kept = [getattr(module, name) for module, name in _PLACES]
        self._cached = caches.exchange([])
