"""The only writers of prices and usage."""

from billing.engine.runs import ObservedRun as ObservedRun

from .metering import record_runs as record_runs
from .prices import create_price as create_price
