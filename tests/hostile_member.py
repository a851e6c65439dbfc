"""A member cluster that lies, drips, floods and falls silent, in a thread of its own or, as a program, in a process of its own."""

import asyncio
import itertools
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

from clusters.drivers.address import ClusterAddress, Credential
from clusters.engine.permissions import ROLE
from tests.scripted_server import SECRET, Authority, Behaviour, Connection, job_object, listed, read_request, status

KINDS = {"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "jobs": "/apis/batch/v1/jobs"}


class Member:
    """A whole member cluster that others can script: an honest API server in a thread of its own, with its nodes, pods and
    Jobs in `objects`, except for what `lies` say. A lie is a behaviour by path, without its query; `LIES` has a collection.
    """

    def __init__(self, name: str, lies: Mapping[str, Behaviour] | None = None) -> None:
        self.name = name
        self.identity = f"uid-{name}"
        self.lies = dict(lies or {})
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.asked: Counter[str] = Counter()
        self.port = 0
        self._version = 100
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = {kind: set() for kind in KINDS}
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._turn, name=f"member {name}", daemon=True)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_pem(self) -> str:
        return LOCAL.pem

    def address(self, cluster_id: UUID | None = None) -> ClusterAddress:
        """As a driver wants it."""
        secret = Credential("token", SECRET.encode())
        id_ = cluster_id or uuid4()
        return ClusterAddress(id_, self.name, self.server, "127.0.0.1", self.port, LOCAL.pem, secret)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def put(self, kind: str, thing: dict[str, Any], event: str = "MODIFIED") -> None:
        """Makes or changes an object, as every watch of its kind is told."""
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind][thing["metadata"]["name"]] = thing
        line = json.dumps({"type": event, "object": thing}).encode() + b"\n"
        for queue in list(self._watches[kind]):
            self._loop.call_soon_threadsafe(queue.put_nowait, line)

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[Any]] = set()

        async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while request := await read_request(reader, writer):
                    path = request.target.partition("?")[0]
                    self.asked[path] += 1
                    await self.lies.get(path, self._usual)(request)
            tasks.discard(task)
            writer.transport.abort()

        listener = await asyncio.start_server(turn, "127.0.0.1", 0, ssl=LOCAL.context())
        self.port = listener.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _usual(self, request: Connection) -> None:
        path, _, query = request.target.partition("?")
        kind = next((kind for kind, folder in KINDS.items() if folder == path), "")
        if kind and "watch=1" in query:
            await self._watch(request, kind)
        elif kind:
            await request.answer(200, listed(*self.objects[kind].values(), version=str(self._version)), Date=_date())
        elif path == "/version":
            await request.answer(200, {"gitVersion": "v1.36.2"}, Date=_date())
        elif path == "/api/v1/namespaces/kube-system":
            await request.answer(200, {"metadata": {"name": "kube-system", "uid": self.identity}})
        elif path == "/apis":
            await request.answer(200, {"groups": [{"name": "batch"}]})
        elif path.endswith("/selfsubjectrulesreviews"):
            await request.answer(201, {"status": {"resourceRules": RULES, "incomplete": False}})
        else:
            await request.answer(404, status(404, "NotFound", "not found"))

    async def _watch(self, request: Connection, kind: str) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches[kind].add(queue)
        try:
            await request.begin()
            while True:
                try:
                    await request.chunk(await asyncio.wait_for(queue.get(), 1))
                except TimeoutError:
                    await request.line("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})
        finally:
            self._watches[kind].discard(queue)


LOCAL = Authority("127.0.0.1")
RULES = [{"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in sorted(ROLE)]


def _date() -> str:
    return format_datetime(datetime.now(UTC), usegmt=True)  # noqa: TID251 - plays the server's clock


def node_of(name: str, **labels: str) -> dict[str, Any]:
    """A node as an honest cluster writes it, ready, with 64 CPUs."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod_of(name: str, namespace: str = "default", **more: Any) -> dict[str, Any]:
    """A running pod as an honest cluster writes it."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **more},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running", "startTime": "2026-11-01T00:00:00Z"},
    }


def _page(items: Sequence[bytes], following: str = "") -> bytes:
    head = json.dumps({"resourceVersion": "100", "continue": following}).encode()
    return b'{"metadata":' + head + b',"items":[' + b",".join(items) + b"]}"


MARK = 987_654_321
"""In the place of the number of an object that is written once for all numbers."""


def _written(make: Callable[[int], dict[str, Any]]) -> Callable[[int], bytes]:
    """Objects by their number, as JSON: to write each anew would cost the liar as much as it costs who listens."""
    text, mark = json.dumps(make(MARK)).encode(), str(MARK).encode()
    return lambda number: text.replace(mark, b"%d" % number)


def endless_pages(make: Callable[[int], dict[str, Any]], *, items: int = 500) -> Behaviour:
    """A list that goes on for ever, each page of new objects under a new token."""
    written = _written(make)

    async def behave(request: Connection) -> None:
        found = re.search(r"continue=(\d+)", request.target)
        start = int(found[1]) if found else 0
        many = [written(start + number) for number in range(items)]
        await request.answer(200, _page(many, str(start + items)))

    return behave


def one_page(items: Sequence[bytes], following: str = "") -> Behaviour:
    """One and the same page, whatever is asked, followed by itself if `following`."""
    raw = _page(items, following)

    async def behave(request: Connection) -> None:
        await request.answer(200, raw)

    return behave


def endless_body(piece: bytes) -> Behaviour:
    """An answer that does not end."""

    async def behave(request: Connection) -> None:
        await request.begin()
        while True:
            await request.chunk(piece)

    return behave


def drip(piece: bytes, seconds: float) -> Behaviour:
    """An answer that comes a bit at a time."""

    async def behave(request: Connection) -> None:
        await request.begin()
        while True:
            await request.chunk(piece)
            await asyncio.sleep(seconds)

    return behave


def flood(kind: str, make: Callable[[int], dict[str, Any]], *, distinct: int = 0) -> Behaviour:
    """An empty list, and a watch that tells of new objects as fast as it can; after `distinct` they come again."""
    numbers = itertools.count()
    version = b"the version"

    def event(number: int) -> dict[str, Any]:
        thing = make(number)
        thing["metadata"]["resourceVersion"] = version.decode()
        return {"type": kind, "object": thing}

    written = _written(event)

    async def behave(request: Connection) -> None:
        if "watch=1" not in request.target:
            await request.answer(200, listed(version="1"))
            return
        await request.begin()
        while True:
            batch = [
                written(number % distinct if distinct else number).replace(version, b"%d" % (10 + number))
                for number in itertools.islice(numbers, 200)
            ]
            await request.chunk(b"\n".join(batch) + b"\n")

    return behave


def many_headers(count: int, size: int) -> Behaviour:
    """An answer with so many headers of such a size."""

    async def behave(request: Connection) -> None:
        await request.send(b"HTTP/1.1 200 OK\r\n")
        for number in range(count):
            await request.send(b"X-%d: " % number + b"a" * size + b"\r\n")
        await request.send(b"Content-Length: 0\r\n\r\n")

    return behave


def fat_node(number: int) -> dict[str, Any]:
    """A node with 5,000 labels."""
    return node_of(f"n{number}", **{f"label-{number}-{each}": "x" * 60 for each in range(5000)})


def our_pod(number: int) -> dict[str, Any]:
    """A pod that claims to be the gateway's, with labels to keep."""
    labels = {"switchyard.dev/install": "switchyard", **{f"l{number}-{each}": "x" * 60 for each in range(50)}}
    return pod_of(f"p{number}", labels=labels)


LIES: Mapping[str, Callable[[], Mapping[str, Behaviour]]] = {
    "endless pods": lambda: {KINDS["pods"]: endless_pages(lambda number: pod_of(f"p{number}"))},
    "endless pods of ours": lambda: {KINDS["pods"]: endless_pages(our_pod)},
    "endless nodes": lambda: {KINDS["nodes"]: endless_pages(lambda number: node_of(f"n{number}"))},
    "endless fat nodes": lambda: {KINDS["nodes"]: endless_pages(fat_node, items=5)},
    "endless Jobs": lambda: {KINDS["jobs"]: endless_pages(lambda number: job_object(f"j{number}"))},
    "one page again and again": lambda: {KINDS["pods"]: one_page([b'{"metadata":{}}'] * 500, "again")},
    "a page of very many items": lambda: {KINDS["pods"]: one_page([b'{"metadata":{}}'] * 480_000)},
    "a page of very many containers": lambda: {
        KINDS["pods"]: one_page([b'{"metadata":{},"spec":{"containers":[' + b",".join([b"{}"] * 2_500_000) + b"]}}"])
    },
    "a page without end": lambda: dict.fromkeys(KINDS.values(), endless_body(b" " * 65_536)),
    "a drip": lambda: dict.fromkeys(KINDS.values(), drip(b" " * 4096, 0.05)),
    "a flood of nodes": lambda: {KINDS["nodes"]: flood("ADDED", lambda number: node_of(f"n{number}"))},
    "a flood of pods": lambda: {KINDS["pods"]: flood("ADDED", lambda number: pod_of(f"p{number}"))},
    "a flood of changes": lambda: {KINDS["pods"]: flood("MODIFIED", lambda n: pod_of(f"p{n}"), distinct=10)},
    "many headers": lambda: dict.fromkeys(KINDS.values(), many_headers(100_000, 1000)),
}
"""What a member may say to hurt the one that listens, by what it is; each makes behaviours by path."""


def peak_mib(pid: int) -> int:
    """The most memory that a process has had in use (VmHWM)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) // 1024


def main(names: Sequence[str]) -> None:
    """Members with these lies, in this process, until its input ends. Prints where they are, by lie, as one line of JSON."""
    with ExitStack() as stack:
        members = {
            name: stack.enter_context(Member(f"liar-{number}", LIES[name]())) for number, name in enumerate(names)
        }
        told = {name: {"port": member.port, "name": member.name} for name, member in members.items()}
        sys.stdout.write(json.dumps({"members": told, "ca_pem": LOCAL.pem}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
