"""`python -m devtools.model [guard NAME | bounds NAME | accept FILE…]`: explores the model, or checks steps of runs; see `make model`."""

import sys

from devtools.model import ModelFailed, run_model

try:
    sys.exit(run_model(sys.argv[1:]))
except ModelFailed as failure:
    sys.exit(f"model: {failure}")
