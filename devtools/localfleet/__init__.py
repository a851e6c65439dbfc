"""Real Kubernetes control planes on one host, for tests, the demo and benchmarks.

Each cluster is its own etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK (which simulates the
nodes' kubelets). Nodes that shall run pods have the kubelet in `kubelet`. The programs are built once from the pinned Go modules in `modules/`; see `binaries`.
"""

from .binaries import BuildFailed, locate
from .controlplane import ControlPlane
from .fleet import SMALL_FLEET, start_fleet, stop_fleet

__all__ = ["SMALL_FLEET", "BuildFailed", "ControlPlane", "locate", "start_fleet", "stop_fleet"]
