"""The recipes for several nodes, as their page has them."""

import json
import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parents[1] / "docs/howto/train-on-several-nodes.md").read_text()
RECIPES: list[dict[str, Any]] = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
SCRIPTS = dict(re.findall(r"`(/opt/\w+\.sh)`:\n\n```bash\n(.*?)```", PAGE, re.DOTALL))
"""By their path in the image."""


def recipe_with(command: str) -> dict[str, Any]:
    """The job that runs this."""
    [found] = [recipe for recipe in RECIPES for pods in recipe["pod_sets"] if command in pods["command"]]
    return found
