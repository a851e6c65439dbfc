"""The kubelet's process: it follows its Nodes, their pods and the Services, and gives each pod its life."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from . import RUNS_LABEL
from .api import Api, Object
from .claims import Claims
from .containers import Container
from .names import Addresses, hosts_text, rewrite
from .nodes import Node
from .pods import Pod
from .processes import memory_of
from .serving import serve

HOST_IP = "127.0.0.1"
MEMORY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the kubelet finds what it needs. `root` is its own tmpfs, `claims` outlives it."""

    kubeconfig: Path
    root: Path
    claims: Path
    port: int
    certificate: Path
    key: Path


class Kubelet:
    """All Nodes of a control plane that run pods."""

    def __init__(self, settings: Settings, api: Api) -> None:
        self.api = api
        self.root, self.claims, self.host_ip = settings.root, settings.claims, HOST_IP
        self._port = settings.port
        self._addresses = Addresses()
        self._claims = Claims(api, settings.claims)
        self._nodes: dict[str, Node] = {}
        self._keepers: dict[str, list[asyncio.Task[None]]] = {}
        self._pods: dict[str, Pod] = {}
        self._group = asyncio.TaskGroup()
        self._services: dict[str, Object] = {}
        self._services_are_known = asyncio.Event()

    async def run(self) -> None:
        """Never returns. A defect ends it, as a node ends, instead of leaving pods without care."""
        async with asyncio.TaskGroup() as self._group:
            for job in (self._follow_services(), self._follow_nodes(), self._watch_memory(), self._claims.follow()):
                self._group.create_task(job)

    def take_address(self) -> str:
        """An address for a pod."""
        return self._addresses.take()

    def give_back(self, address: str) -> None:
        """The pod has ended."""
        self._addresses.give_back(address)

    def allocatable(self, node: str) -> Mapping[str, str]:
        """What the node offers."""
        found = self._nodes.get(node)
        amounts: Mapping[str, str] = found.manifest.get("status", {}).get("allocatable", {}) if found else {}
        return amounts

    def pods(self) -> list[Pod]:
        """All that have an object."""
        return list(self._pods.values())

    async def _follow_services(self) -> None:
        async for event in self.api.follow("/api/v1/services"):
            if event is None:
                self._services_are_known.set()
                continue
            uid = event.seen["metadata"]["uid"]
            if event.is_gone:
                self._services.pop(uid, None)
            else:
                self._services[uid] = event.seen
            self.names_changed(event.seen["metadata"]["namespace"])

    def names_changed(self, namespace: str) -> None:
        """Writes the hosts files of the namespace's pods again."""
        named = [(pod, found) for pod in self._pods.values() if (found := pod.named())]
        for pod, found in named:
            if found.namespace == namespace:
                text = hosts_text(found, [other for _, other in named], self._services.values())
                with contextlib.suppress(OSError):
                    rewrite(pod.folder / "hosts", text)

    async def _follow_nodes(self) -> None:
        await self._services_are_known.wait()
        await self._claims.are_known.wait()
        async for event in self.api.follow("/api/v1/nodes", f"labelSelector={quote(f'{RUNS_LABEL}=true', safe='')}"):
            if event is None:
                continue
            name = event.seen["metadata"]["name"]
            if event.is_gone:
                self._drop_node(name)
            elif name in self._nodes:
                self._nodes[name].manifest = event.seen
            else:
                node = self._nodes[name] = Node(event.seen, self.api, HOST_IP, self._port)
                jobs = (node.keep(), self._follow_pods(name))
                self._keepers[name] = [self._group.create_task(job) for job in jobs]

    def _drop_node(self, name: str) -> None:
        """The Node is gone: so are its processes. Its pods' objects are the garbage collector's."""
        self._nodes.pop(name, None)
        for task in self._keepers.pop(name, ()):
            task.cancel()
        for uid, pod in list(self._pods.items()):
            if pod.manifest["spec"]["nodeName"] == name:
                pod.vanish()
                del self._pods[uid]

    async def _follow_pods(self, node: str) -> None:
        async for event in self.api.follow("/api/v1/pods", f"fieldSelector={quote(f'spec.nodeName={node}', safe='')}"):
            if event is None:
                continue
            uid = event.seen["metadata"]["uid"]
            known = self._pods.get(uid)
            if event.is_gone:
                if known is not None:
                    known.vanish()
                    del self._pods[uid]
            elif known is not None:
                known.update(event.seen)
            else:
                self._pods[uid] = pod = Pod(event.seen, self)
                self._group.create_task(pod.live())

    async def _watch_memory(self) -> None:
        """Kills containers that use more than their limit, as the kernel does for a control group."""
        while True:
            limited = {one.running.pid: one for one in self._running() if one.running and one.memory_limit}
            if limited:
                used = await asyncio.to_thread(memory_of, [one.running for one in limited.values() if one.running])
                for pid, amount in used.items():
                    container = limited[pid]
                    if container.memory_limit and amount > container.memory_limit:
                        container.kill_for_memory(pid)
            await asyncio.sleep(MEMORY_SECONDS)

    def _running(self) -> Iterator[Container]:
        for pod in self._pods.values():
            yield from (container for container in pod.containers if container.running)


async def run(settings: Settings) -> None:
    """Runs a kubelet until it gets SIGTERM or SIGINT. Its processes end with it."""
    api = Api.of_kubeconfig(settings.kubeconfig)
    kubelet = Kubelet(settings, api)
    for folder in (settings.root / "pods", settings.claims):
        folder.mkdir(parents=True, exist_ok=True)
    runner = await serve(HOST_IP, settings.port, settings.certificate, settings.key, kubelet.pods)
    work = asyncio.ensure_future(kubelet.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await work
    finally:
        await runner.cleanup()
        await api.close()
