"""Runs every check except tests: `python -m devtools.check [step …]`."""

import base64
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from devtools import learned

PROJECT = Path(__file__).resolve().parent.parent
ROOMS = ("federation", "simulator", "placement", "billing", "quotas", "clusters", "tenancy", "foundation")
TYPED = ("config", *ROOMS, "sdk/switchyard", "devtools", "benchmarks", "tests")
MANAGE = (sys.executable, "-W", "ignore:Got an error checking a consistent migration history", "manage.py")
STEPS: Mapping[str, Sequence[str]] = {
    "lint": (sys.executable, "-m", "ruff", "check", "."),
    "format": (sys.executable, "-m", "ruff", "format", "--check", "."),
    "layers": (str(Path(sys.executable).parent / "lint-imports"),),
    "types": (sys.executable, "-m", "mypy", *TYPED),
    "migrations": (*MANAGE, "makemigrations", "--check", "--dry-run"),
    "prose": (sys.executable, "-m", "devtools.prose"),
    "schema": (*MANAGE, "spectacular", "--validate", "--fail-on-warn", "--file", os.devnull),
}
# Enough for Django to start: no step needs a server.
PLACEHOLDERS = {
    "SWITCHYARD_SECRET_KEY": "checks-only-" + "k" * 50,
    "SWITCHYARD_KEY_RING": "check:" + base64.b64encode(b"c" * 32).decode(),
    "DATABASE_URL": "postgresql://nobody:nothing@127.0.0.1:1/none",
    "REDIS_URL": "redis://:nothing@127.0.0.1:1/0",
}


def main(wanted: Sequence[str]) -> int:
    """Exit status: 1 if a step failed; all steps are run."""
    unknown = set(wanted) - set(STEPS)
    if unknown:
        print(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    failed = [name for name in wanted or STEPS if not _passes(name)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _passes(name: str) -> bool:
    started = time.monotonic()
    with learned.brought() if name == "types" else nullcontext():
        done = subprocess.run(
            STEPS[name],
            cwd=PROJECT,
            env={**PLACEHOLDERS, **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    passed = done.returncode == 0
    print(f"{name:<12}{'ok' if passed else 'FAILED':<8}{time.monotonic() - started:5.1f} s", flush=True)
    if not passed:
        print(done.stdout, flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
