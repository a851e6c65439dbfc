"""`python -m devtools.porcupine HISTORY.jsonl…`: prints the verdict as JSON; exits with 1 if a history is refused."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from devtools.porcupine.checking import CheckerFailed, check

try:
    found = check(*map(Path, sys.argv[1:]))
except CheckerFailed as failure:
    sys.exit(f"porcupine: {failure}")
print(json.dumps(asdict(found)))
sys.exit(1 if found.refused else 0)
