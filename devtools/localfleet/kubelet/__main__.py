"""`python -m devtools.localfleet.kubelet`: the kubelet of one control plane; `controlplane` starts it in its own namespaces."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from .service import Settings, run


def main() -> int:
    """Exit status of the command."""
    parser = argparse.ArgumentParser(prog="python -m devtools.localfleet.kubelet", description=__doc__)
    for name in ("kubeconfig", "root", "claims", "certificate", "key"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(run(Settings(**vars(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
