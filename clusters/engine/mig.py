"""Which mixes of MIG slices one GPU of a model can have.

A GPU has eight places for slices in a row (an A30 has four). A slice of a profile takes some places side by side, from certain ones on.
Source: NVIDIA's MIG user guide, "Supported MIG Profiles", and the placements that `nvidia-smi mig -lgipp` lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

Mix = tuple[tuple[str, int], ...]
"""Profiles by name, each with its number of slices, of one GPU."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How a slice lies: the places it takes, and where it may begin."""

    name: str
    places: int
    starts: tuple[int, ...]


def _of_seven(*names: str) -> tuple[Profile, ...]:
    """The six profiles of GPUs with seven compute slices: 1g, 1g with twice the memory, 2g, 3g, 4g and 7g."""
    shapes = (
        (1, tuple(range(7))), (2, (0, 2, 4, 6)), (2, (0, 2, 4)), (4, (0, 4)), (4, (0,)), (8, (0,)),
    )  # fmt: skip
    return tuple(Profile(name, *shape) for name, shape in zip(names, shapes, strict=True))


PROFILES: Mapping[str, tuple[Profile, ...]] = {
    "A30": (Profile("1g.6gb", 1, (0, 1, 2, 3)), Profile("2g.12gb", 2, (0, 2)), Profile("4g.24gb", 4, (0,))),
    "A100-40GB": _of_seven("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-80GB": _of_seven("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-80GB": _of_seven("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-94GB": _of_seven("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    "H100-96GB": _of_seven("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "H200": _of_seven("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200": _of_seven("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}
"""By the names of models as flavors have them. Profiles with media engines (`+me`) are not planned."""


def profiles_of(model: str) -> tuple[str, ...]:
    """The profiles of a model, the smallest first; none if the model is not known to have any."""
    return tuple(profile.name for profile in PROFILES.get(model, ()))


def mix_of(slices: Mapping[str, int]) -> Mix:
    """The slices as a mix: by name, without those that are none."""
    return tuple(sorted((name, count) for name, count in slices.items() if count))


@lru_cache(maxsize=65_536)
def holds(model: str, mix: Mix) -> bool:
    """Whether one GPU of the model can have all these slices at the same time."""
    known = {profile.name: profile for profile in PROFILES.get(model, ())}
    if any(name not in known or count < 0 for name, count in mix):
        return False
    if sum(known[name].places * count for name, count in mix) > max((one.places for one in known.values()), default=0):
        return False
    wanted = [known[name] for name, count in mix for _ in range(count)]
    wanted.sort(key=lambda profile: (-profile.places, len(profile.starts)))
    return _lie(tuple(wanted), 0)


@lru_cache(maxsize=1_024)
def most_of(model: str, profile: str) -> int:
    """How many slices of the profile one GPU of the model can have."""
    count = 0
    while holds(model, ((profile, count + 1),)):
        count += 1
    return count


def _lie(wanted: tuple[Profile, ...], taken: int) -> bool:
    """Whether the slices find places among those that are free; `taken` has a bit for each place."""
    if not wanted:
        return True
    first, *others = wanted
    rest = tuple(others)
    for start in first.starts:
        own = ((1 << first.places) - 1) << start
        if not taken & own and _lie(rest, taken | own):
            return True
    return False


def fewest_gpus(model: str, slices: Mapping[str, int]) -> int | None:
    """The number of GPUs that these slices certainly come from: no fewer have the places. None if the model cannot have one of them."""
    known = {profile.name: profile for profile in PROFILES.get(model, ())}
    if any(name not in known for name in slices):
        return None
    most = max(profile.places for profile in known.values()) if known else 1
    return -(-sum(known[name].places * count for name, count in slices.items()) // most)
