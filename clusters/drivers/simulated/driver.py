"""The port's methods on a simulated cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from clusters.drivers.exchanges import PortAnswer, PortRequest, PortStream
from clusters.drivers.port import (
    AS_CREATED,
    AlreadyExists,
    JobSeen,
    NotThere,
    PodSeen,
    Refused,
    RulesSeen,
    ServiceSeen,
    Stale,
    Unreachable,
    WatchEvent,
)
from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.inventory import INSTALL_LABEL
from clusters.engine.permissions import ROLE, Right
from foundation import clock

from . import allocation, confinement, gang_services, life
from .manifests import job_from, preferring
from .objects import Job, Pod, merged
from .programs import Program
from .store import Glance, KindName, Object, Store

VERSION = "v1.36.2-simulated"
Thing = TypeVar("Thing", Pod, Job)
Trouble = Literal["unreachable", "unwatched"]
"""The trouble of a simulated cluster: it responds to nothing, or it responds and its watches return nothing."""
_POLL_SECONDS = 0.1
_ALIVE_SECONDS = 15.0


class SimulatedDriver:
    """A ClusterDriver for a simulated cluster that `found_cluster` made.

    Processes that open its file share it. Pods run for `sim.switchyard.dev/run-seconds` (1 if missing, or `never`).
    """

    def __init__(self, path: Path, install_id: str, *, now: Callable[[], datetime] = clock.now) -> None:
        self._path = path
        self._install_id = install_id
        self._now = now
        self._opened: Store | None = None
        self._latest: tuple[float, Store, Glance] | None = None

    async def version(self) -> str:
        """The version of Kubernetes that is simulated."""
        self._store()
        return VERSION

    async def identity(self) -> str:
        """Who this cluster is."""
        return self._store().fact("identity")

    async def clock_skew_ms(self) -> int:
        """Always 0: it uses our own clock."""
        return 0

    async def rules(self, namespace: str) -> RulesSeen:  # noqa: ARG002 - the port's signature
        """The published role, in every namespace."""
        return RulesSeen(
            [
                {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
                for right in sorted(ROLE)
            ]
        )

    async def may(self, right: Right, namespace: str = "") -> bool:  # noqa: ARG002 - the port's signature
        """Whether it is in the published role."""
        return right in ROLE

    async def api_groups(self) -> frozenset[str]:
        """The API groups of the objects that it can store."""
        self._store()
        return frozenset({"batch", "networking.k8s.io", "resource.k8s.io"})

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """The response of the published admission policies."""
        self._store()
        why_not = confinement.why_not(rehearsal)
        return Answered(rehearsal, would=not why_not, reason=why_not)

    async def any_pod(self, namespace: str) -> str:
        """The name of the first pod there."""
        return next((pod.name for pod in self._looked().pods() if pod.namespace == namespace), "")

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Creates the namespace, or checks that an existing one is ours, and stores the policies."""
        store = self._store()
        with store.write():
            present = store.namespace_labels(name)
            if present is None:
                store.add_namespace(name, {**labels, INSTALL_LABEL: self._install_id})
            elif present.get(INSTALL_LABEL) != self._install_id:
                raise Refused(f"the namespace {name} exists and does not belong to Switchyard", status=409)
        for manifest in policies:
            await self.put_network_policy(manifest)

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """Stores the policy, which has no effect: simulated pods use no network."""
        namespace = str(manifest["metadata"]["namespace"])
        store = self._store()
        with store.write():
            if store.namespace_labels(namespace) is None:
                raise NotThere(f'namespaces "{namespace}" not found', status=404)
            store.put_policy(namespace, manifest)

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """Stores the template, whose spec is immutable."""
        namespace, name = str(manifest["metadata"]["namespace"]), str(manifest["metadata"]["name"])
        store = self._store()
        with store.write():
            if store.namespace_labels(namespace) is None:
                raise NotThere(f'namespaces "{namespace}" not found', status=404)
            allocation.check_template(manifest)
            present = store.template(namespace, name)
            if present is None:
                store.put_template(namespace, name, manifest)
            elif present["spec"] != manifest["spec"]:
                raise Refused("spec: Invalid value: field is immutable", status=422)

    async def create_service(self, manifest: Mapping[str, Any]) -> None:
        """Stores the Service."""
        store = self._store()
        with store.write():
            gang_services.create_service(store, manifest)

    async def get_service(self, namespace: str, name: str) -> ServiceSeen:
        """The Service as it is now."""
        return gang_services.service_seen(self._store(), namespace, name)

    async def create_secret(self, manifest: Mapping[str, Any]) -> None:
        """Stores the Secret without its values. If its owners are gone, it is gone as well."""
        metadata = manifest["metadata"]
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        store = self._store()
        with store.write():
            if store.namespace_labels(namespace) is None:
                raise NotThere("the cluster did not create the job's Secret (status 404)", status=404)
            if name in {found["metadata"]["name"] for found in store.secrets(namespace)}:
                raise AlreadyExists("the cluster did not create the job's Secret (status 409)", status=409)
            owners = [owner["uid"] for owner in metadata.get("ownerReferences", ())]
            standing = {job.uid for job in store.jobs()}
            if not owners or not standing.isdisjoint(owners):
                store.put_secret(namespace, {**manifest, "data": dict.fromkeys(manifest["data"], "")})

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the Job; returns its uid."""
        job = job_from(manifest)
        store = self._store()
        with store.write():
            at = self._pass_time(store)
            if store.namespace_labels(job.namespace) is None:
                raise NotThere(f'namespaces "{job.namespace}" not found', status=404)
            if store.job(job.namespace, job.name) is not None:
                raise AlreadyExists(f'jobs.batch "{job.name}" already exists', status=409)
            store.put(job)
            life.run_job(store, job, at)
            life.bind(store, at)
        return job.uid

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """The Job as it is now."""
        store = self._looked()
        return _found(store.job(namespace, name), namespace, name).seen()

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job with this uid, as it was created, merging the patch into its template."""
        store = self._store()
        with store.write():
            at = self._pass_time(store)
            job = self._with_uid(store, namespace, name, uid)
            if job.generation != AS_CREATED:
                raise Stale("the server rejected our request due to an error in our request", status=422)
            template = merged(job.template, template_patch)
            if not job.suspended and template != job.template:
                raise Refused("spec.template: field is immutable", status=422)
            if job.suspended:
                job.suspended, job.template = False, template
                job.generation += 1
                store.put(job)
                life.run_job(store, job, at)
                life.bind(store, at)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid and its pods."""
        store = self._store()
        with store.write():
            at = self._pass_time(store)
            life.remove_job(store, self._with_uid(store, namespace, name, uid), at)

    async def list_jobs(self) -> Sequence[JobSeen]:
        """All Jobs that carry our install label."""
        return [job.seen() for job in self._looked().jobs() if self._is_ours(job)]

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """The pods of one Job."""
        store = self._looked()
        job = store.job(namespace, job_name)
        return [] if job is None else [pod.seen() for pod in store.pods_of(job.uid)]

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Removes the gate from the pod with this uid and sets its node preferences."""
        store = self._store()
        with store.write():
            at = self._pass_time(store)
            found = _found(store.pod(namespace, pod), namespace, pod)
            if found.uid != uid:
                raise Stale(f"the object {pod} has another uid", status=409)
            if wishes and not found.gates:
                raise Refused("spec: Forbidden: a pod that is not gated keeps its affinity", status=422)
            gates = [{"name": name} for name in found.gates if name != gate]
            found.spec = merged(found.spec, {"schedulingGates": gates, **preferring(wishes)})
            store.put(found)
            life.bind(store, at)

    async def read_log(
        self, namespace: str, pod: str, *, tail_lines: int, limit_bytes: int, container: str = ""
    ) -> str:
        """The log of a simulated pod: when it started, and when and how it ended. Only one of its containers writes."""
        found = _found(self._looked().pod(namespace, pod), namespace, pod)
        if found.started_at is None:
            raise Refused(f"pod {pod} is waiting to start", status=400)
        if container and container != found.writer:
            return ""
        lines = [f"{found.seen().started_at} started on {found.node}"]
        if found.is_ended:
            lines.append(f"{found.seen().finished_at} ended with exit code {found.exit_code}")
        lines += found.log.splitlines()
        return "".join(f"{line}\n" for line in lines[-tail_lines:])[:limit_bytes] if tail_lines > 0 else ""

    async def ask_pod(self, namespace: str, pod: str, port: int, request: PortRequest) -> PortAnswer:
        """A running pod's program answers on every port."""
        return _found(self._looked().pod(namespace, pod), namespace, pod).answer(port, request)

    @asynccontextmanager
    async def open_port(self, namespace: str, pod: str, port: int) -> AsyncIterator[PortStream]:
        """A connection to its program."""
        yield Program(_found(self._looked().pod(namespace, pod), namespace, pod), port)

    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """All nodes."""
        return self._watch("node")

    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """All pods of the cluster."""
        return self._watch("pod")

    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """All Jobs that carry our install label."""
        return self._watch("job")

    async def device_classes(self) -> frozenset[str]:
        """The DeviceClasses of every known driver."""
        return allocation.DEVICE_CLASSES

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """All ResourceSlices."""
        return self._watch("slice")

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """All ResourceClaims."""
        return self._watch("claim")

    async def close(self) -> None:
        """Closes the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = self._latest = None

    async def _watch(self, kind: KindName) -> AsyncIterator[WatchEvent]:
        """Polls the file's revision; a watcher that missed discarded deletions lists again."""
        seen = -1
        spoke_at = clock.monotonic()
        while True:
            store, glance = self._glanced()
            if self._trouble(glance) == "unwatched":
                raise Unreachable("the simulated cluster's watches bring nothing")
            revision = glance.revision
            if seen < glance.horizon:
                seen, spoke_at = revision, clock.monotonic()
                yield WatchEvent("listed", [thing.seen() for thing in self._all(store, kind)])
            elif revision > seen:
                for _, is_deletion, thing in store.changes_since(kind, seen):
                    if self._shows(thing):
                        yield WatchEvent("deleted" if is_deletion else "changed", (thing.seen(),))
                seen, spoke_at = revision, clock.monotonic()
            elif clock.monotonic() - spoke_at > _ALIVE_SECONDS:
                spoke_at = clock.monotonic()
                yield WatchEvent("alive", ())
            await asyncio.sleep(_POLL_SECONDS)

    def _all(self, store: Store, kind: KindName) -> list[Object]:
        lists: Mapping[KindName, Callable[[], Sequence[Object]]] = {
            "node": store.nodes,
            "pod": store.pods,
            "job": store.jobs,
            "slice": store.slices,
            "claim": store.claims,
        }
        return [thing for thing in lists[kind]() if self._shows(thing)]

    def _shows(self, thing: Object) -> bool:
        return not isinstance(thing, Job) or self._is_ours(thing)

    def _is_ours(self, job: Job) -> bool:
        return job.labels.get(INSTALL_LABEL) == self._install_id

    def _with_uid(self, store: Store, namespace: str, name: str, uid: str) -> Job:
        job = _found(store.job(namespace, name), namespace, name)
        if job.uid != uid:
            raise Stale(f"the object {name} has another uid", status=409)
        return job

    def _looked(self) -> Store:
        """The store after everything scheduled until now has happened."""
        store, _ = self._looked_around()
        return store

    def _glanced(self) -> tuple[Store, Glance]:
        """The same for all watches that poll at about one time: in a large fleet, glances would cost more than all else."""
        if self._latest is None or clock.monotonic() - self._latest[0] > _POLL_SECONDS / 2:
            self._latest = (clock.monotonic(), *self._looked_around())
        return self._latest[1:]

    def _looked_around(self) -> tuple[Store, Glance]:
        store, glance = self._reached()
        if glance.due_at <= self._now().timestamp():
            with store.write():
                self._pass_time(store)
            glance = store.glance()
        return store, glance

    def _pass_time(self, store: Store) -> float:
        at = self._now().timestamp()
        life.let_time_pass(store, at)
        return at

    def _store(self) -> Store:
        store, _ = self._reached()
        return store

    def _reached(self) -> tuple[Store, Glance]:
        if self._opened is None:
            if not self._path.exists():
                raise Unreachable("there is no such simulated cluster")
            self._opened = Store(self._path)
        glance = self._opened.glance()
        if self._trouble(glance) == "unreachable":
            raise Unreachable("the simulated cluster does not answer")
        return self._opened, glance

    def _trouble(self, glance: Glance) -> str:
        return glance.trouble if glance.trouble_since <= self._now().timestamp() else ""


def _found(thing: Thing | None, namespace: str, name: str) -> Thing:
    if thing is None:
        raise NotThere(f"{namespace}/{name} not found", status=404)
    return thing
