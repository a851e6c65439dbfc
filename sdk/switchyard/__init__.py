"""The Python client of Switchyard, a gateway in front of many Kubernetes clusters."""

from .client import ENDED, Client
from .problems import NotConfigured, Problem, SwitchyardError, TimedOut, Unreachable

__all__ = ["ENDED", "Client", "NotConfigured", "Problem", "SwitchyardError", "TimedOut", "Unreachable"]
