"""Patterns over texts that programs and clusters write. Their cost is linear, so no text and no pattern can stall us.

A pattern is literal text in which `*` stands for anything, also nothing. It is found anywhere in one line, and case does
not matter. There are no other special characters. A name such as `@nccl_timeout` stands for several patterns.
"""

from collections.abc import Iterable, Sequence

MOST_PATTERN = 200
LEAST_LETTERS = 3
LONGEST_LINE = 2000
PRESETS: dict[str, tuple[str, ...]] = {
    "@nccl_timeout": (
        "watchdog caught collective operation timeout",
        "nccl*timeout",
        "nccl*timed out",
        "ncclremoteerror",
        "nccl*connection closed by remote peer",
    ),
    "@cuda_error": ("cuda error", "cuda runtime error", "cudnn_status_", "cublas_status_", "cuda_error_"),
    "@gpu_lost": ("gpu has fallen off the bus", "gpu is lost", "unable to determine the device handle for gpu"),
    "@gpu_ecc": ("uncorrectable ecc error", "cuda_error_ecc_uncorrectable", "ecc*double bit"),
    "@gpu_xid": ("nvrm: xid", "xid error"),
    "@no_space": ("no space left on device", "disk quota exceeded"),
    "@network": ("temporary failure in name resolution", "no route to host", "network is unreachable"),
}
"""Texts that libraries and drivers of GPUs write, by name."""


def fault_of(pattern: str) -> str:
    """Why this is no pattern; empty if it is one."""
    if pattern.startswith("@"):
        return "" if pattern in PRESETS else f"one of: {', '.join(PRESETS)}"
    if len(pattern) > MOST_PATTERN:
        return f"at most {MOST_PATTERN} characters"
    letters = sum(letter != "*" and not letter.isspace() for letter in pattern)
    if letters < LEAST_LETTERS:
        return f"at least {LEAST_LETTERS} characters besides '*' and blanks"
    return "" if pattern.isprintable() else "printable characters only"


def lines_of(text: str) -> list[str]:
    """The lines of a text in which patterns are found: each cut, in lower case."""
    return [line[:LONGEST_LINE].lower() for line in text.splitlines()]


def first_found(patterns: Iterable[str], lines: Sequence[str]) -> str:
    """The first of the patterns that one of these lines (of `lines_of`) has; empty if none is found."""
    return next((one for one in patterns if any(_is_in(each, line) for each in _texts(one) for line in lines)), "")


def _texts(pattern: str) -> tuple[str, ...]:
    return PRESETS.get(pattern, (pattern.lower(),))


def _is_in(pattern: str, line: str) -> bool:
    """Whether the parts between the stars follow each other in the line. The first place of each part is enough,
    because it leaves the most for those behind it.
    """
    at = 0
    for part in pattern.split("*"):
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
