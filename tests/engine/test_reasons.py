"""The documented codes are the codes there are."""

import re
from pathlib import Path

from federation.engine.reasons import CLUSTER_CODES, JOB_CODES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


def test_every_reason_code_is_documented_and_no_other():
    _, of_job, per_cluster = PAGE.read_text().split("\n## ")
    documented = [
        [
            code
            for line in part.splitlines()
            if line.startswith("| `")
            for code in re.findall(r"`(\w+)`", line.split("|")[1])
        ]
        for part in (of_job, per_cluster)
    ]
    assert documented == [list(JOB_CODES), list(CLUSTER_CODES)]
