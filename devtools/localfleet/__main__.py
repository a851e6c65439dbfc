"""`python -m devtools.localfleet`: run a fleet in the foreground, or only build its programs."""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from devtools.programs import unpack

from .binaries import BuildFailed, locate
from .controlplane import StartFailed
from .fleet import describe, start_fleet, stop_fleet
from .fleetfile import BadFleetFile


def main() -> int:
    """Exit status of the command."""
    parser = argparse.ArgumentParser(prog="python -m devtools.localfleet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build what is missing and print where each program is")
    run = commands.add_parser("run", help="run control planes until Ctrl-C or SIGTERM")
    run.add_argument("-n", type=int, default=3, help="how many (default 3)")
    run.add_argument("--fleet", type=Path, help="fleet file (default: fleets/small.yaml)")
    run.add_argument(
        "--out", type=Path, help="folder for kubeconfigs and logs (default: a temporary one, removed at the end)"
    )
    run.add_argument("--api-only", action="store_true", help="only etcd and kube-apiserver")
    run.add_argument("--default-qps", action="store_true", help="Kubernetes' own request limits for controllers")
    options = parser.parse_args()
    try:
        if options.command == "build":
            for name, path in locate().items():
                print(name, path)
            return 0
        return _run(options)
    except (BuildFailed, StartFailed, BadFleetFile) as failure:
        print(f"localfleet: {failure}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    stops = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in stops:
        signal.signal(number, _interrupt)
    root = options.out or Path(tempfile.mkdtemp(prefix="switchyard-fleet-", dir="/var/tmp"))
    planes = []
    try:
        planes = start_fleet(
            options.n, root.resolve(), fleet_file=options.fleet, api_only=options.api_only, fast=not options.default_qps
        )
        describe(planes)
        print("kubectl", shutil.which("kubectl") or unpack("kubectl", root.resolve()), flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        for number in stops:
            signal.signal(number, signal.SIG_IGN)
        stop_fleet(planes)
        if options.out is None:
            shutil.rmtree(root, ignore_errors=True)
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
