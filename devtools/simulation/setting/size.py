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
    turns: tuple[int, int] | None = None
    """The steps between which the seed decides who runs next; before and after, each actor runs for as long as it can."""
    absent: tuple[str, ...] = ()
    """Kinds of processes that are not there."""
    one_cluster: bool = False
    """The second cluster is not registered any more when the world begins."""
    cut: bool = False
    """The run ends as soon as it has broken a promise for good."""
    unwished: tuple[int, ...] = ()
    """What operators do not want, by its number in the order in which they would come to want it."""
    undone: tuple[int, ...] = ()
    """What accountants leave undone, by its number in the order in which they would plan it."""

    def arguments(self) -> str:
        """As the command takes it."""
        words = []
        if self.jobs:
            words.append("--jobs " + _written(self.jobs))
        if self.only:
            words.append("--only " + ",".join(self.only))
        if self.without:
            words.append("--without " + ",".join(self.without))
        if self.spared:
            words.append("--spared " + _written(self.spared))
        if self.alone:
            words.append("--alone")
        if self.until:
            words.append(f"--until {self.until:g}")
        if self.scale:
            words.append(f"--scale {self.scale}")
        if self.turns is not None:
            words.append("--turns {},{}".format(*self.turns))
        if self.absent:
            words.append("--absent " + ",".join(self.absent))
        words += [f"--{name.replace('_', '-')}" for name in ("one_cluster", "cut") if getattr(self, name)]
        words += [
            f"--{name} {_written(numbers)}" for name in ("unwished", "undone") if (numbers := getattr(self, name))
        ]
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
    parser.add_argument("--spared", default="", help="faults that do not happen, by number: 0-3,7")
    parser.add_argument("--alone", action="store_true", help="one process of each kind")
    parser.add_argument("--until", type=float, default=0.0, help="faults end after this many simulated seconds")
    parser.add_argument(
        "--scale", default="", choices=("small", "whole"), help="how large each world is; else the seed draws it"
    )
    parser.add_argument("--turns", default="", help="the seed decides who runs only between these steps: 120,180")
    parser.add_argument("--absent", default="", help="kinds of processes that are not there: observer,operator")
    parser.add_argument("--one-cluster", action="store_true", help="without the second cluster")
    parser.add_argument("--cut", action="store_true", help="end as soon as a promise is broken for good")
    parser.add_argument("--unwished", default="", help="what operators do not want, by number: 0-3,7")
    parser.add_argument("--undone", default="", help="what accountants leave undone, by number: 0-3,7")


def size_of(wanted: argparse.Namespace) -> Size:
    """What the arguments say."""
    return Size(
        jobs=_numbers(wanted.jobs),
        only=tuple(word for word in wanted.only.split(",") if word),
        without=tuple(word for word in wanted.without.split(",") if word),
        spared=_numbers(wanted.spared),
        alone=wanted.alone,
        until=wanted.until,
        scale=wanted.scale,
        turns=_pair(wanted.turns),
        absent=tuple(word for word in wanted.absent.split(",") if word),
        one_cluster=wanted.one_cluster,
        cut=wanted.cut,
        unwished=_numbers(wanted.unwished),
        undone=_numbers(wanted.undone),
    )


def _numbers(words: str) -> tuple[int, ...]:
    """From `0-3,7`."""
    ends = [tuple(map(int, word.split("-"))) for word in words.split(",") if word]
    return tuple(number for end in ends for number in range(end[0], end[-1] + 1))


def _written(numbers: tuple[int, ...]) -> str:
    """As `_numbers` reads them: those that follow each other as one range."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


def _pair(words: str) -> tuple[int, int] | None:
    if not words:
        return None
    first, last = map(int, words.split(","))
    return first, last
