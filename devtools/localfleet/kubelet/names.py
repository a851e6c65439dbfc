"""Addresses of pods on loopback, and their hosts files: names that a cluster's DNS would resolve.

All pods share the host's network, so two pods that listen on all addresses cannot have the same port.
"""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOMAIN = "svc.cluster.local"
RANGES = range(16, 251)
PODS_PER_RANGE = 253 * 254
LOCAL = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class NoAddress(Exception):
    """No address is left."""


class Addresses:
    """Addresses of 127.N.0.0/16. No other kubelet of this host has the same N while this one lives."""

    def __init__(self) -> None:
        self._claim = socket.socket(socket.AF_UNIX)
        self._number = next((number for number in RANGES if self._claimed(number)), 0)
        if not self._number:
            raise NoAddress(f"{len(RANGES)} kubelets run on this host already")
        self._used: set[int] = set()
        self._last = 0

    def _claimed(self, number: int) -> bool:
        try:
            self._claim.bind(f"\0switchyard-kubelet-{number}")  # the kernel removes the name with the process
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Another kubelet may have the addresses."""
        self._claim.close()

    def take(self) -> str:
        """An address that no pod has; the one used longest ago comes last."""
        for _ in range(PODS_PER_RANGE):
            self._last = self._last % PODS_PER_RANGE + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return f"127.{self._number}.{1 + self._last // 254}.{1 + self._last % 254}"
        raise NoAddress("every pod address is in use")

    def give_back(self, address: str) -> None:
        """The address is free again."""
        _, _, third, fourth = address.split(".")
        self._used.discard((int(third) - 1) * 254 + int(fourth) - 1)


@dataclass(frozen=True, slots=True)
class Named:
    """A pod as names see it."""

    namespace: str
    hostname: str
    subdomain: str
    address: str
    labels: Mapping[str, str]
    is_ready: bool


def hostname_of(manifest: Mapping[str, Any]) -> str:
    """The name that the pod's processes see as their host's."""
    return str(manifest["spec"].get("hostname") or manifest["metadata"]["name"])[:63].rstrip("-.")


def hosts_text(mine: Named, pods: Iterable[Named], services: Iterable[Mapping[str, Any]]) -> str:
    """The hosts file of a pod: itself, and the pods of its namespace's headless Services, as DNS would publish them.

    A pod that is not ready is published only if the Service asks for it.
    """
    full = f"{mine.hostname}.{mine.subdomain}.{mine.namespace}.{DOMAIN}"
    lines = [f"{mine.address}\t{f'{full} ' if mine.subdomain else ''}{mine.hostname}"]
    others = sorted((pod for pod in pods if pod.namespace == mine.namespace), key=lambda pod: pod.hostname)
    for service in sorted(services, key=lambda service: str(service["metadata"]["name"])):
        spec, name = service["spec"], service["metadata"]["name"]
        if service["metadata"]["namespace"] != mine.namespace or spec.get("clusterIP") != "None":
            continue
        for pod in others:
            if _selects(spec.get("selector"), pod.labels) and (pod.is_ready or spec.get("publishNotReadyAddresses")):
                stems = [f"{pod.hostname}.{name}"] if pod.subdomain == name else []
                lines += [f"{pod.address}\t{' '.join(_forms(stem, mine.namespace))}" for stem in [*stems, name]]
    return LOCAL + "\n".join(lines) + "\n"


def _forms(stem: str, namespace: str) -> Iterable[str]:
    """The full name first: a reverse lookup finds it."""
    return (f"{stem}.{namespace}.{DOMAIN}", f"{stem}.{namespace}.svc", f"{stem}.{namespace}", stem)


def _selects(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    return bool(selector) and all(labels.get(key) == value for key, value in (selector or {}).items())


def rewrite(file: Path, text: str) -> None:
    """Changes a mounted file: it must stay the same file, and readers must find no less than before for long."""
    content = text.encode()
    with file.open("r+b" if file.exists() else "w+b", buffering=0) as hosts:
        if hosts.read() != content:
            hosts.seek(0)
            hosts.write(content)
            hosts.truncate(len(content))
