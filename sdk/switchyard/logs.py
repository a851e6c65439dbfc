"""What is new in a log that can only be read by its end, again and again."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tail:
    """One pod's log, as far as it was read."""

    lines: Sequence[str] = field(default_factory=list)

    def new_lines(self, text: str, *, is_cut: bool, is_whole: bool) -> tuple[Sequence[str], bool]:
        """The lines of `text` that were not read before, and whether lines between may be missing. `text` is the end of the
        log; with `is_cut` it begins within a line; a last line without a line feed waits for its rest unless `is_whole`.
        """
        lines = text.split("\n")
        rest = lines.pop()
        if is_whole and rest:
            lines.append(rest)
        known = self.lines
        read = lines[1:] if is_cut else lines
        self.lines = read or known
        for shift in range(len(known) + 1):
            overlap = len(known) - shift
            if list(known[shift:]) == read[:overlap]:
                return read[overlap:], bool(known and read and not overlap)
        raise AssertionError("an empty overlap always matches")
