"""What AutoETS expects, for `benchmarks.forecast --auto-ets PYTHON`: a program for another environment, which has the package
statsforecast and nothing of the product.

Reads `{"histories": [[...]], "first": 14, "last": 28, "season": 7}` and writes, for each history, what it expects of the `last` days
after its first `first`, `first + 1` … days.
"""

import argparse
import json
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    numpy, models = import_module("numpy"), import_module("statsforecast.models")
    asked: dict[str, Any] = json.load(sys.stdin)
    model = models.AutoETS(season_length=asked["season"])

    def expected(history: list[float]) -> list[list[float]]:
        known = numpy.asarray(history, dtype=numpy.float64)
        ends = range(asked["first"], len(known))
        return [[float(each) for each in model.forecast(known[:end], asked["last"])["mean"]] for end in ends]

    json.dump([expected(history) for history in asked["histories"]], sys.stdout)


if __name__ == "__main__":
    main()
