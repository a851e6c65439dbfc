"""What a failing run prints: its timeline, what it broke, and how to repeat it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Result

LAST_LINES = 400


def show(result: "Result", out: Callable[[str], None], mutant: str = "", *, is_sound: bool = False) -> None:
    """The timeline by actor, what was broken, and the command that repeats it."""
    for line in result.timeline[-LAST_LINES:]:
        out(line)
    for line in result.breaks:
        out(line)
    words = [
        "--timeline",
        f"--mutant {mutant}" if mutant else "",
        "--sound" if is_sound else "",
        result.size.arguments(),
    ]
    out(f'again: make simulate SEEDS=1 FROM={result.seed} ARGS="{" ".join(filter(None, words))}"')
