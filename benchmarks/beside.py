"""Submits and dispatch of this checkout beside those of another one, in short rounds in turn.

The gateways of both run all the time, one with three real API servers for dispatch and one without clusters for
intake; only one of them has work at a time. A host that changes its speed within minutes then changes both alike, and
the ratio of two neighbouring rounds says more than two long runs one after the other. Servers that start first are a few
hundredths slower, for equal code too, so all of them start a second time in the other order, and half of the rounds follow.
The same code beside itself shows what is left of the noise.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import api, dispatch, report
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.binaries import locate
from devtools.trial import Gateway, start_gateway

HERE = Path(__file__).resolve().parent.parent
MARK = "round:"
"""Before each answer of a child: servers write to its output, too."""


class Checkout:
    """A gateway from the code in `folder`, in a process that answers one line for each round; `programs` is the folder of the
    control planes' programs.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        # -P: this file's folder has modules that are named like rooms.
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            # Both have the same API servers: half of the CPU time is theirs, and other builds differ by a tenth.
            env={**os.environ, "PYTHONPATH": str(folder), "KUBEBUILDER_ASSETS": str(programs)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def round(self, jobs: int) -> dict[str, float]:
        """The figures of one round."""
        assert self._process.stdin is not None
        print(jobs, file=self._process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        """Ends the gateway and its servers."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                found: dict[str, float] = json.loads(line.removeprefix(MARK))
                return found
        raise SystemExit(f"the gateway of {self._folder} ended")


def serve() -> None:
    """Runs one gateway of the code on the path, and a round for each number of jobs on the standard input."""
    with tempfile.TemporaryDirectory(prefix="switchyard-bench-", dir="/var/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        planes = start_fleet(3, root / "fleet", fleet_file=dispatch.FLEET, api_only=True)
        gateway, intake = start_gateway(root / "home"), start_gateway(root / "intake")
        try:
            for plane in planes:
                gateway.register(plane)
            seen = dispatch.Sightings()
            for plane in planes:
                dispatch.Watch(plane, seen).start()
            dispatch.sequential(gateway, planes, seen, 50)
            print(MARK, "{}", flush=True)
            for line in sys.stdin:
                print(MARK, json.dumps(_round(gateway, intake, planes, seen, int(line))), flush=True)
        finally:
            gateway.stop()
            intake.stop()
            stop_fleet(planes)


def _round(
    gateway: Gateway, intake: Gateway, planes: Sequence[ControlPlane], seen: dispatch.Sightings, jobs: int
) -> dict[str, float]:
    figures = dispatch.sequential(gateway, planes, seen, jobs)
    cpu_before = sum(intake.cpu_seconds().values())
    rate, latencies = api.burst(intake, jobs, api.CONNECTIONS)
    return {
        **figures,
        "submits_per_second": rate,
        "submit_p50_ms": report.percentile(latencies, 0.5),
        "submit_cpu_ms": (sum(intake.cpu_seconds().values()) - cpu_before) * 1000 / jobs,
    }


def rounds(
    folders: Sequence[Path], order: Sequence[int], programs: Path, count: int, jobs: int
) -> Iterator[dict[int, dict[str, float]]]:
    """The figures of both in each round, with their servers started in this order."""
    checkouts = {}
    try:
        for one in order:
            checkouts[one] = Checkout(folders[one], programs)
        for number in range(count):
            # The second of a pair could gain or lose by its place, so the order changes from pair to pair.
            turns = order if number % 2 else order[::-1]
            yield {one: checkouts[one].round(jobs) for one in turns}
    finally:
        for checkout in checkouts.values():
            checkout.stop()


def compared(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> list[dict[str, object]]:
    """For each figure the medians of both, and the median and the quartiles of the ratios of neighbouring rounds."""
    rows: list[dict[str, object]] = []
    for name in sorted(ours[0].keys() & theirs[0].keys()):
        ratios = [our[name] / their[name] for our, their in zip(ours, theirs, strict=True) if their[name]]
        row = {"here": report.median(one[name] for one in ours), "there": report.median(one[name] for one in theirs)}
        quartiles = {"ratio": report.median(ratios), "25 %": report.percentile(ratios, 0.25)}
        rows.append({"figure": name, **row, **quartiles, "75 %": report.percentile(ratios, 0.75)})
    return rows


def _short(value: object) -> object:
    return f"{value:.2f}" if isinstance(value, float) and value < 10 else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, nargs="?", help="a checkout of the other revision, with its .venv")
    parser.add_argument("--rounds", type=int, default=12, help="an even number")
    parser.add_argument("--jobs", type=int, default=200, help="of each round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.other is None:
        parser.error("name the folder of the other checkout")
    if options.rounds < 2 or options.rounds % 2:
        parser.error("--rounds is an even number: half of them with each order of starting")
    there = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=options.other, check=False, capture_output=True, text=True
    )
    report.conditions(beside=there.stdout.strip(), rounds=options.rounds, jobs=options.jobs, clusters=3)
    programs = locate()["kube-apiserver"].parent
    folders = (HERE, options.other.resolve())
    found: list[list[dict[str, float]]] = [[], []]
    for order in ((0, 1), (1, 0)):
        for pair in rounds(folders, order, programs, options.rounds // 2, options.jobs):
            print(json.dumps({"here": pair[0], "there": pair[1]}), flush=True)
            for one in order:
                found[one].append(pair[one])
    rows = compared(found[0], found[1])
    report.table([{label: _short(value) for label, value in row.items()} for row in rows])
    report.last_line({str(row["figure"]): row["ratio"] for row in rows})


if __name__ == "__main__":
    main()
