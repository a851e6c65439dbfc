"""Renders the Job that copies a dataset from one storage of a cluster to another: the Job of an attempt, without devices, with the
operator's copy image and a program that is fixed here. Nothing that a user writes becomes part of the program: paths are parts of
volumes (`subPath`), and a digest is an argument of 64 hex digits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.names import LABEL_PREPARATION
from federation.engine.staging import DEADLINE, NOT_WHOLE, NOTHING_THERE, WRONG_DIGEST

from .mounts import lay_mounts
from .rendering import Devices, Identity, render_job, spec_hash

STAGE_IN = "stage-in"
"""The value of the label."""
SOURCE, TARGET = "/switchyard/from", "/switchyard/to"
CPU_MILLICORES, MEMORY_MIB = 1000, 512
PROGRAM = f"""
set -eu
from= to= want=
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=$2 ;;
    --to) to=$2 ;;
    --sha256) want=$2 ;;
    *) echo "unknown argument" >&2; exit 64 ;;
  esac
  shift 2
done
size() {{ find "$1" -type f -exec stat -c %s {{}} + | awk '{{n += $1}} END {{printf "%.0f", n}}'; }}
total=`size "$from"`
if [ "$total" = 0 ]; then echo "nothing to copy" >&2; exit {NOTHING_THERE}; fi
echo "switchyard-stage 0 $total"
( while sleep 5; do done=`size "$to" 2>/dev/null`; echo "switchyard-stage $done $total"; done ) &
watching=$!
trap 'kill $watching 2>/dev/null || :' EXIT
cp -RP "$from/." "$to/"
names() {{ {{ cd "$from" && find . -type f -print0 || echo broken >&3; }} | {{ LC_ALL=C sort -z || echo broken >&3; }} }}
sums() {{ cd "$to" && xargs -0 sha256sum && echo whole >&3; }}
said=`{{ names | sums | sha256sum; }} 3>&1`
case "$said" in whole*) ;; *) echo "the copy is not whole" >&2; exit {NOT_WHOLE} ;; esac
sum=${{said#whole?}}
sum=${{sum%% *}}
if [ -n "$want" ] && [ "$sum" != "$want" ]; then echo "sha256 is $sum" >&2; exit {WRONG_DIGEST}; fi
echo "switchyard-staged $total $sum"
""".strip()
"""For any image with a POSIX shell and the usual commands, such as busybox."""


def stage_spec(image: str, sha256: str) -> Mapping[str, Any]:
    """The stored spec of a copy."""
    wanted = ["--sha256", sha256] if sha256 else []
    pod = {
        "name": STAGE_IN,
        "count": 1,
        "image": image,
        "cpu": f"{CPU_MILLICORES}m",
        "memory": f"{MEMORY_MIB}Mi",
        "command": ["/bin/sh", "-c", PROGRAM, STAGE_IN],
        "args": ["--from", SOURCE, "--to", TARGET, *wanted],
    }
    body = {"name": STAGE_IN, "pod_sets": [pod], "deadline_seconds": int(DEADLINE.total_seconds())}
    return spec_json(read_spec(body, Rules()))


def stage_hash(image: str, sha256: str) -> str:
    """The spec hash of such a copy."""
    return spec_hash(stage_spec(image, sha256))


def labels_of(identity: Identity) -> dict[str, str]:
    """The labels of the Job and its pod: its attempt is the copy, and its job the plan."""
    return {**identity.labels, LABEL_PREPARATION: STAGE_IN}


def render_stage_in(image: str, sha256: str, identity: Identity, mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The suspended Job that copies what is mounted at `SOURCE` to what is mounted at `TARGET`."""
    manifest = render_job(stage_spec(image, sha256), 0, identity, Devices())
    template = manifest["spec"]["template"]
    manifest["metadata"]["labels"] = template["metadata"]["labels"] = labels_of(identity)
    lay_mounts(template["spec"], mounts)
    return manifest
