"""The port to a simulated cluster: requests and answers take time, get lost, come twice or late."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from clusters.drivers import (
    AlreadyExists,
    Ambiguous,
    AuthFailed,
    JobSeen,
    NotThere,
    PodSeen,
    Refused,
    ServiceSeen,
    Throttled,
    Unreachable,
    WatchEvent,
)
from clusters.drivers.exchanges import PortAnswer
from clusters.drivers.port import NotAnswered, RulesSeen
from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.permissions import ROLE, Right
from devtools.simulation.core.faults import CALLS
from devtools.simulation.core.scheduler import MICROSECONDS

from .cluster import Kind
from .frail_cluster import FrailCluster
from .link import Link
from .objects import Key, is_ours, seen
from .watching import ALIVE_SECONDS, Watching

Result = TypeVar("Result")
Things = TypeVar("Things", bound=Sequence[Any])
TIMEOUT_SECONDS = 10.0
REFUSING = frozenset({"unreachable", "throttled", "unavailable", "forbidden", "refused"})
WRITES = frozenset({"create_job", "create_service", "release_job", "delete_job"})
LISTED = 0.5
"""The share of objects in a list that lacks some."""


class SimulatedClusterDriver:
    """A ClusterDriver of one simulated process."""

    def __init__(self, link: Link, install_id: str) -> None:
        self._link = link
        self._install_id = install_id

    @property
    def _cluster(self) -> FrailCluster:
        return self._link.cluster

    async def _call(self, what: str, apply: Callable[[], Result], uid: str = "") -> Result:
        """Sends a request. The scheduler runs others while it travels, and while its answer does."""
        link, faults = self._link, self._link.faults
        if what in WRITES:
            link.on_write(what, uid)
        await asyncio.sleep(faults.between(0.001, 0.05))
        await self._reach(is_change=what in WRITES)
        fault = self._fault_of(what, uid)
        if fault:
            link.scheduler.note(f"{self._cluster.name} {what} {fault}\n")
            link.scheduler.tell(self._cluster.name, f"{what}: {fault}")
        if fault in REFUSING:
            self._refuse(what, fault)
        if fault == "slow":
            await asyncio.sleep(faults.between(1, TIMEOUT_SECONDS))
        if fault == "delayed" and what in WRITES:
            self._later(what, apply)
        if fault in ("lost", "delayed"):
            await self._time_out()
        answer = apply()
        if fault == "repeated" and what in WRITES:
            self._later(what, apply)
        if fault == "reply_lost":
            await self._time_out()
        if fault == "answered_500":
            raise Ambiguous("500 Internal Server Error", status=500)
        await asyncio.sleep(faults.between(0.001, 0.05))
        await self._reach()
        return answer

    def _fault_of(self, what: str, uid: str) -> str:
        of_release = self._link.fault_of_release(uid) if what == "release_job" else ""
        return of_release or self._link.faults.first(CALLS)

    async def _write(self, what: str, key: Key, uid: str, apply: Callable[[], Result]) -> Result:
        """Sends a request that changes a Job. A stranger may have taken its name when it arrives."""

        def arrive() -> Result:
            if self._link.happens("name_taken"):
                self._cluster.take_name(*key)
            return apply()

        return await self._call(what, arrive, uid)

    async def _reach(self, *, is_change: bool = False) -> None:
        """Nothing gets through while the cluster is cut off, and no request for a change while a webhook hangs."""
        link = self._link
        link.on_reach()
        if link.is_cut or link.is_destroyed or (is_change and link.hangs):
            await self._time_out()
        if self._link.is_revoked:
            raise AuthFailed("the credential is not accepted", status=401)

    async def _time_out(self) -> NoReturn:
        await asyncio.sleep(TIMEOUT_SECONDS)
        raise Ambiguous("the cluster did not answer in time")

    def _refuse(self, what: str, fault: str) -> None:
        """Raises what the API server answers without doing anything, if it may answer that."""
        match fault:
            case "unreachable":
                raise Unreachable("the connection is refused")
            case "throttled":
                raise Throttled("too many requests", retry_after_seconds=self._link.faults.between(0.5, 5))
            case "unavailable":
                raise Ambiguous("503 Service Unavailable", status=503)
            case "forbidden" if what in WRITES:
                raise Refused("forbidden", status=403)
            case "refused" if what in WRITES - {"delete_job"}:
                raise Refused("an admission webhook denied the request", status=422)

    def _later(self, what: str, apply: Callable[[], object]) -> None:
        """The request arrives (again) after a while, when no caller waits for its answer."""
        cluster = self._cluster

        def arrive() -> None:
            if self._link.cluster is not cluster:
                return
            try:
                apply()
                self._link.scheduler.tell(cluster.name, f"{what} of before takes effect")
            except Refused:
                return

        self._link.scheduler.after(self._link.faults.between(0.1, 60), arrive)

    async def version(self) -> str:
        """The version that is simulated."""
        return await self._call("version", lambda: "v1.36.2-simulated")

    async def identity(self) -> str:
        """Who answers."""
        return await self._call("identity", lambda: self._cluster.identity)

    async def clock_skew_ms(self) -> int:
        """Its clock minus that of the asking process, as from a Date header: up to a second too small."""
        shown_us: int = await self._call("clock", lambda: self._cluster.now_us() // MICROSECONDS * MICROSECONDS)
        return round((shown_us - self._link.scheduler.now_us - self._link.scheduler.current.process.ahead_us) / 1000)

    async def rules(self, namespace: str) -> RulesSeen:  # noqa: ARG002 - the port's signature
        """The published role."""
        return RulesSeen([{"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]} for r in sorted(ROLE)])

    async def may(self, right: Right, namespace: str = "") -> bool:  # noqa: ARG002 - the port's signature
        """Whether the published role has this right."""
        return await self._call("may", lambda: right in ROLE and right.resource not in self._link.lacks)

    async def api_groups(self) -> frozenset[str]:
        """What it serves."""
        kueue = {"kueue.x-k8s.io"} if self._cluster.has_kueue else set()
        return frozenset({"batch", "networking.k8s.io", *kueue})

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """It would do anything."""
        return Answered(rehearsal, would=True, reason="")

    async def any_pod(self, namespace: str) -> str:
        """A pod there."""
        return next((pod.name for pod in self._cluster.pods.values() if pod.namespace == namespace), "")

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Creates it."""
        del labels, policies
        await self._call("ensure_namespace", lambda: self._cluster.namespaces.add(name))

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """It has no effect."""

        def put() -> None:
            if manifest["metadata"]["namespace"] not in self._cluster.namespaces:
                raise NotThere("the namespace is not found", status=404)

        await self._call("put_network_policy", put)

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """There are no devices to claim."""

    async def create_service(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Service. A stranger may have taken its name when the request arrives."""

        def arrive() -> None:
            self._link.require("services")
            if self._link.happens("service_name_taken"):
                self._cluster.take_service_name(manifest["metadata"])
            self._cluster.create_service(manifest)

        await self._call("create_service", arrive)

    async def get_service(self, namespace: str, name: str) -> ServiceSeen:
        """As it is now."""

        def show() -> ServiceSeen:
            self._link.require("services")
            return self._cluster.services.show(namespace, name)

        return await self._call("get_service", show)

    async def create_secret(self, manifest: Mapping[str, Any]) -> None:
        """Keeps its name."""
        key = str(manifest["metadata"]["namespace"]), str(manifest["metadata"]["name"])

        def put() -> None:
            if key[0] not in self._cluster.namespaces:
                raise NotThere(f'namespaces "{key[0]}" not found', status=404)
            if key in self._cluster.secrets:
                raise AlreadyExists(f'secrets "{key[1]}" already exists', status=409)
            self._cluster.secrets.add(key)

        await self._call("create_secret", put)

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the Job; returns its uid."""
        key = str(manifest["metadata"]["namespace"]), str(manifest["metadata"]["name"])

        def create() -> str:
            self._cluster.fabric.admit(manifest)
            return self._cluster.create_job(manifest)

        uid = await self._write("create_job", key, "", create)
        return self._cluster.lie_about(uid) if self._link.happens("uid_lies") else uid

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """The Job as it is now."""
        return await self._call("get_job", lambda: seen(self._cluster.show_job(namespace, name)))  # type: ignore[arg-type, return-value]

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job with this uid, as it was created."""

        def release() -> None:
            waits_for_kueue = self._cluster.job(namespace, name).waits_for_kueue
            self._cluster.release_job(namespace, name, uid, template_patch)
            if waits_for_kueue:
                self._cluster.overruled.append(uid)

        await self._write("release_job", (namespace, name), uid, release)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid."""
        await self._write("delete_job", (namespace, name), uid, lambda: self._cluster.delete_job(namespace, name, uid))

    async def list_jobs(self) -> Sequence[JobSeen]:
        """All Jobs that carry our install label."""
        return await self._call("list_jobs", lambda: self._listed("job"))

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """The pods of one Job."""

        def pods() -> list[PodSeen]:
            self._link.show_pods()
            job = self._cluster.jobs.get((namespace, job_name))
            return [] if job is None else [seen(pod) for pod in self._cluster.pods_of(job)]  # type: ignore[misc]

        return self._shown(await self._call("list_pods", pods))

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Removes the gate. Preferences have no effect."""
        await self._call("open_gate", lambda: self._link.open_gate(namespace, pod, uid, gate, wishes))

    async def read_log(self, namespace: str, pod: str, **_: object) -> str:
        """What the pod wrote."""
        return await self._call("read_log", lambda: self._read_log(namespace, pod))

    def _read_log(self, namespace: str, pod: str) -> str:
        if self._link.hides_logs:
            raise Unreachable("the kubelet does not answer")
        return self._cluster.log_of(namespace, pod)

    async def ask_pod(self, *_: object) -> PortAnswer:
        """Its programs serve nothing."""
        raise NotAnswered("nothing answers on this port of the pod", status=502)

    def open_port(self, *_: object) -> NoReturn:
        """Likewise."""
        raise NotAnswered("nothing answers on this port of the pod", status=502)

    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """All nodes."""
        return self._watch("node")

    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """All pods."""
        return self._watch("pod")

    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """All Jobs of ours."""
        return self._watch("job")

    async def device_classes(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """None."""
        return self._watch_nothing()

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """None."""
        return self._watch_nothing()

    async def close(self) -> None:
        """Nothing is open."""

    def _listed(self, kind: Kind) -> list[Any]:
        if kind == "pod":
            self._link.show_pods()
        found = self._cluster.all(kind)
        if kind == "job":
            found = [job for job in found if is_ours(job, self._install_id)]
            if self._link.happens("list_lacks"):
                found = [job for job in found if self._link.faults.between(0, 1) < LISTED]
        return [seen(thing) for thing in found]

    def _shown(self, things: Things) -> Things:
        """Notes that the gateway is shown these pods, if they have started."""
        self._cluster.shown |= {one.uid for one in things if isinstance(one, PodSeen) and one.started_at is not None}
        return things

    async def _watch_nothing(self) -> AsyncIterator[WatchEvent]:
        yield WatchEvent("listed", ())
        while True:
            await asyncio.sleep(2 * ALIVE_SECONDS)
            yield WatchEvent("alive", ())

    async def _watch(self, kind: Kind) -> AsyncIterator[WatchEvent]:
        """Lists, then follows. Events may be skipped, repeated, or stop to come."""
        watching = Watching(self._link, kind, self._install_id)
        try:
            watching.open()
            yield WatchEvent("listed", self._shown(await self._call(f"list_{kind}s", lambda: self._listed(kind))))
            while True:
                event = await watching.next()
                if event == "again":
                    yield WatchEvent(
                        "listed", self._shown(await self._call(f"list_{kind}s", lambda: self._listed(kind)))
                    )
                elif isinstance(event, WatchEvent):
                    self._shown(event.objects)
                    yield event
        finally:
            watching.close()
