"""How much of a seed's world there is: shrinking takes parts away as long as the same promise is still broken."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """Everything by default."""

    jobs: tuple[int, ...] = ()
    """The numbers of the jobs that are submitted; empty: all."""
    only: tuple[str, ...] = ()
    """The kinds of faults that may happen, at their highest rates; empty: those that the seed switches on."""
    without: tuple[str, ...] = ()
    """Kinds of faults that do not happen."""
    spared: tuple[int, ...] = ()
    """Faults that do not happen, by their numbers in the order of the run."""
    alone: bool = False
    """One process of each kind."""
    until: float = 0.0
    """Faults end after this many simulated seconds; 0: when the seed says so."""
    scale: str = ""
    """`small` or `whole`; empty: as the seed draws."""

    def arguments(self) -> str:
        """As the command takes it."""
        words = []
        if self.jobs:
            words.append("--jobs " + ",".join(map(str, self.jobs)))
        if self.only:
            words.append("--only " + ",".join(self.only))
        if self.without:
            words.append("--without " + ",".join(self.without))
        if self.spared:
            words.append("--spared " + ",".join(map(str, self.spared)))
        if self.alone:
            words.append("--alone")
        if self.until:
            words.append(f"--until {self.until:g}")
        if self.scale:
            words.append(f"--scale {self.scale}")
        return " ".join(words)

    @classmethod
    def read(cls, arguments: str) -> "Size":
        """From what `arguments` gave."""
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return size_of(parser.parse_args(arguments.split()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that make a world smaller."""
    parser.add_argument("--jobs", default="", help="only these jobs, by number: 0,2")
    parser.add_argument("--only", default="", help="the kinds of faults that may happen, often")
    parser.add_argument("--without", default="", help="kinds of faults that do not happen")
    parser.add_argument("--spared", default="", help="faults that do not happen, by number")
    parser.add_argument("--alone", action="store_true", help="one process of each kind")
    parser.add_argument("--until", type=float, default=0.0, help="faults end after this many simulated seconds")
    parser.add_argument(
        "--scale", default="", choices=("small", "whole"), help="how large each world is; else the seed draws it"
    )


def size_of(wanted: argparse.Namespace) -> Size:
    """What the arguments say."""
    return Size(
        jobs=tuple(int(word) for word in wanted.jobs.split(",") if word),
        only=tuple(word for word in wanted.only.split(",") if word),
        without=tuple(word for word in wanted.without.split(",") if word),
        spared=tuple(int(word) for word in wanted.spared.split(",") if word),
        alone=wanted.alone,
        until=wanted.until,
        scale=wanted.scale,
    )
