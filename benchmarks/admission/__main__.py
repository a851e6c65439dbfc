"""How fast work is admitted under quota: `make bench-admission`, each part alone with `ARGS="--part NAME"`.

- `kueue-small`: Kueue's own generator (`test/performance/scheduler/configs/baseline`) against a whole gateway of real processes with one
  simulated cluster: 15,000 jobs of 30 queues in 5 cohorts, in real time, over HTTP. Anchor: Kueue on a host with 2 cores needs 390 s at
  46.4 % mean use of the quota.
- `kueue-large`: likewise 50,000 jobs of 1,000 queues in 10 cohorts. Not part of a run without `--part`.
- `holds`: quota holds taken a second, in batches of 1 and 500 by 1, 16 and 64 clients, within guarantees and borrowing.
- `reclaim`: the search for victims when a gang of 64 nodes takes back quota on 1,000 nodes that borrowers fill; milliseconds.
- `armada`: rounds with 1,000 nodes, 10 queues and 320,000 queued jobs, in which quota that was lent is taken back. Anchor: Armada, 1.3 s. Not
  part of a run without `--part`.
- `cycle`: the cycle with 1,000 tenants five levels deep, 100,000 queued and 10,000 running jobs.

`--scale 0.02` makes each part smaller, to show that it works.
"""

import argparse

from benchmarks import report
from benchmarks.admission import armada, cycles, holds, kueue, reclaims
from benchmarks.own_database import own_database

PARTS = ("kueue-small", "kueue-large", "holds", "cycle", "reclaim", "armada")
USUAL = ("kueue-small", "holds", "cycle", "reclaim")


def main() -> None:
    """Prints conditions, raw numbers, and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="a part of all counts")
    options = parser.parse_args()
    parts = options.part or USUAL
    report.conditions(parts=" ".join(parts), scale=options.scale)
    figures: dict[str, object] = {}
    for name, load in (("small", kueue.SMALL), ("large", kueue.LARGE)):
        if f"kueue-{name}" in parts:
            figures |= {f"kueue_{name}_{key}": value for key, value in kueue.measure(load, options.scale).items()}
    if "reclaim" in parts:
        figures["reclaim_ms"] = reclaims.measure(options.scale)
    if "holds" in parts or "cycle" in parts:
        with own_database():
            if "holds" in parts:
                figures["holds_per_second"] = holds.measure(options.scale)
            if "cycle" in parts:
                figures |= cycles.measure(options.scale)
    if "armada" in parts:
        with own_database():  # its fleet and its queue alone
            figures |= armada.measure(options.scale)
    report.last_line(figures)


if __name__ == "__main__":
    main()
