"""The driver for real clusters: typed requests to one API server over a pinned, verified connection."""

from .driver import KubernetesDriver
from .wire import Limits

__all__ = ["KubernetesDriver", "Limits"]
