"""One pod: from its binding to one of our nodes until its object is gone."""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from .api import FAILURES, STRATEGIC, Api, ApiError, Object
from .containers import TERMINATION_LOG, Container
from .environment import Facts, command_of, variables_of
from .images import program_of, variables_of_image
from .names import Named, hostname_of
from .namespaces import MS_NODEV, MS_NOSUID, mount, unmount
from .processes import Mount, Plan
from .status import ENDED, Conditions, Status, lost, now, phase_of, waiting
from .volumes import SHM_MIB, Source, Unmountable, decoded, mounts_of, prepare

NOBODY = 65534
RETRY_SECONDS = 1
ONLY = {"$patch": "replace"}
"""In a list of a strategic merge patch: what was in the list before goes."""
log = logging.getLogger(__name__)


class Host(Protocol):
    """What a pod needs of its node."""

    api: Api
    root: Path
    claims: Path
    host_ip: str

    def take_address(self) -> str: ...
    def give_back(self, address: str) -> None: ...
    def allocatable(self, node: str) -> Mapping[str, str]: ...
    def names_changed(self, namespace: str) -> None: ...


class Pod:
    """A pod of one of our nodes; `live` ends when there is nothing left to do for it."""

    def __init__(self, manifest: Object, host: Host) -> None:
        self.manifest = manifest
        self.namespace, self.name = str(manifest["metadata"]["namespace"]), str(manifest["metadata"]["name"])
        self.address = ""
        self.folder = host.root / "pods" / manifest["metadata"]["uid"]
        self.gone = asyncio.Event()
        self._host = host
        self._places: dict[str, Path] = {}
        self._stopping, self._mains_over, self._dirty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writing = asyncio.Lock()
        self._deadline: float | None = None
        self._is_over = False
        self._started_at = ""
        self._conditions = Conditions()
        spec = manifest["spec"]
        policy, init = spec.get("restartPolicy", "Always"), spec.get("initContainers", ())
        reason = "PodInitializing" if init else "ContainerCreating"
        self.mains = [Container(one, policy, self, self._stopping, reason) for one in spec["containers"]]
        self.inits = [self._init_container(one, policy, reason) for one in init]
        self._is_initialized = not init
        self.update(manifest)

    def _init_container(self, spec: Mapping[str, Any], policy: str, reason: str) -> Container:
        if spec.get("restartPolicy") == "Always":
            return Container(spec, "Always", self, self._mains_over, reason)
        return Container(spec, "OnFailure" if policy != "Never" else "Never", self, self._stopping, reason)

    @property
    def containers(self) -> list[Container]:
        """All of them, in the order of their start."""
        return [*self.inits, *self.mains]

    @property
    def is_ended(self) -> bool:
        """Whether none of its containers runs or will run."""
        return self._is_over

    def update(self, manifest: Object) -> None:
        """Takes the object as it is now; a deletion begins, or its time becomes shorter."""
        self.manifest = manifest
        if manifest["metadata"].get("deletionTimestamp"):
            self._stop_within(manifest["metadata"].get("deletionGracePeriodSeconds") or 0)

    def vanish(self) -> None:
        """The object is gone: ends everything now."""
        self.gone.set()
        self._stop_within(0)

    def _stop_within(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self._deadline = ends if self._deadline is None else min(ends, self._deadline)
        self._stopping.set()

    def seconds_left(self) -> float:
        """Until what still runs is killed."""
        return (self._deadline or 0) - time.monotonic()

    def changed(self) -> None:
        """Has the status written, and the names of the pod's namespace."""
        self._dirty.set()
        self._host.names_changed(self.namespace)

    async def live(self) -> None:
        """Runs the pod, writes its last status, and deletes the object once that is asked for."""
        writer = asyncio.create_task(self._write_changes())
        try:
            if self.manifest.get("status", {}).get("phase") not in ENDED:
                self._inherit()
                if not self._is_over:
                    await self._work()
                await self._flush()
            self._is_over = True
            await self._stopping.wait()
            await self._delete()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _inherit(self) -> None:
        """A kubelet before this one ran the pod: its processes ended with it."""
        status = self.manifest.get("status", {})
        known = {
            one["name"]: one
            for key in ("initContainerStatuses", "containerStatuses")
            for one in status.get(key, ())
            if one.get("containerID")
        }
        self._started_at = status.get("startTime", "")
        self._is_initialized |= any(container.name in known for container in self.mains)
        for container in self.containers:
            if before := known.get(container.name):
                state = before["state"] if "terminated" in before["state"] else lost()
                container.last_state, container.restarts = state, before["restartCount"] + 1
        if known and self.manifest["spec"].get("restartPolicy") == "Never":
            for container in self.containers:
                if before := known.get(container.name):
                    container.state, container.last_state = container.last_state, before.get("lastState", {})
                    container.restarts = before["restartCount"]
            self._close()

    def _close(self) -> None:
        """No container runs or will run. Those of an initialized pod that never ran count as failed."""
        self._is_over = True
        for container in self.mains if self._is_initialized else ():
            if "terminated" not in container.state:
                container.state = lost()
        self.changed()

    async def _work(self) -> None:
        self.address = self._host.take_address()
        self._started_at = self._started_at or now()
        try:
            if await self._prepare():
                await self._run()
        finally:
            self._close()
            self._release()

    async def _prepare(self) -> bool:
        """Whether the volumes are ready; waits for what is missing until the pod is to stop."""
        self.folder.mkdir(parents=True)
        shm = self.folder / "shm"
        shm.mkdir()
        mount("shm", str(shm), "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={SHM_MIB}m")
        (self.folder / "hosts").touch(mode=0o644)
        self.changed()
        spec = self.manifest["spec"]
        while not self._stopping.is_set():
            try:
                group = self._security("fsGroup")
                source = Source(self._facts(), self._read, self._mint, self._host.claims, group)
                self._places = await prepare(spec.get("volumes", ()), self.folder / "volumes", source)
            except (Unmountable, *FAILURES) as error:
                for container in self.containers:
                    container.state = waiting("ContainerCreating", str(error))
                self.changed()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)
            else:
                return True
        return False

    async def _run(self) -> None:
        sidecars: list[asyncio.Task[int | None]] = []
        try:
            for container in self.inits:
                if container.spec.get("restartPolicy") == "Always":
                    sidecars.append(asyncio.create_task(container.run()))
                    await self._begun(container)
                elif await container.run() != 0:
                    return
                else:
                    container.is_ready = True
                if self._stopping.is_set():
                    return
            self._is_initialized = True
            self.changed()
            await asyncio.gather(*(container.run() for container in self.mains))
        finally:
            if self._deadline is None:
                grace = self.manifest["spec"].get("terminationGracePeriodSeconds", 30)
                self._deadline = time.monotonic() + grace
            self._mains_over.set()
            await asyncio.gather(*sidecars)

    async def _begun(self, container: Container) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (container.has_begun, self._stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def plan(self, spec: Mapping[str, Any], scratch: Path) -> Plan:
        """How to run one of the containers now. Raises Unresolvable or Unmountable."""
        facts = self._facts()
        hostname = hostname_of(self.manifest)
        variables = await self._variables(spec, facts, hostname)
        mounts = mounts_of(spec, self.manifest["spec"], self._places, variables)
        termination = spec.get("terminationMessagePath", TERMINATION_LOG)
        mounts += [
            Mount(str(self.folder / "hosts"), "/etc/hosts", read_only=False),
            Mount(str(_termination_log(scratch)), termination, read_only=False),
        ]
        uid = self._security("runAsUser", spec) or NOBODY
        groups = [*self._pod_security().get("supplementalGroups", ()), self._security("fsGroup")]
        return Plan(
            command=command_of(spec, variables) or program_of(self.manifest),
            environment=variables,
            folder=spec.get("workingDir") or "/",
            hostname=hostname,
            uid=uid,
            gid=self._security("runAsGroup", spec) or (NOBODY if uid == NOBODY else uid),
            groups=[group for group in groups if group is not None],
            mounts=mounts,
            scratch=str(scratch),
            shm=str(self.folder / "shm"),
            kubelet=str(self._host.root),
        )

    async def _variables(self, spec: Mapping[str, Any], facts: Facts, hostname: str) -> dict[str, str]:
        while True:
            try:
                return await variables_of(spec, facts, self._read, variables_of_image(hostname))
            except FAILURES as failure:
                log.warning("%s: %r", self._path(), failure)
                if self._stopping.is_set():
                    raise Unmountable(str(failure)) from failure
                await asyncio.sleep(RETRY_SECONDS)

    def _pod_security(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.manifest["spec"].get("securityContext") or {}
        return found

    def _security(self, field: str, container: Mapping[str, Any] | None = None) -> int | None:
        own = ((container or {}).get("securityContext") or {}).get(field)
        found: int | None = own if own is not None else self._pod_security().get(field)
        return found

    def _facts(self) -> Facts:
        allocatable = self._host.allocatable(self.manifest["spec"]["nodeName"])
        return Facts(self.manifest, self.address, self._host.host_ip, allocatable)

    async def _read(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        try:
            return decoded(kind, await self._host.api.get(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"))
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    async def _mint(self, settings: Mapping[str, Any]) -> str:
        metadata, spec = self.manifest["metadata"], self.manifest["spec"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        wanted: Object = {"expirationSeconds": settings.get("expirationSeconds", 3600), "boundObjectRef": bound}
        if audience := settings.get("audience"):
            wanted["audiences"] = [audience]
        account = spec.get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        made = await self._host.api.call("POST", path, {"spec": wanted})
        return str(made["status"]["token"])

    def named(self) -> Named | None:
        """The pod as names see it; None if it has no address at present."""
        if not self.address or self._is_over:
            return None
        metadata, spec = self.manifest["metadata"], self.manifest["spec"]
        return Named(
            metadata["namespace"],
            hostname_of(self.manifest),
            spec.get("subdomain", ""),
            self.address,
            metadata.get("labels", {}),
            self._is_ready(),
        )

    def _is_ready(self) -> bool:
        return self._is_initialized and not self._is_over and all(one.is_ready for one in self.mains)

    def status(self) -> Status:
        """Its PodStatus, as far as a kubelet owns it."""
        mains, inits = ([one.status() for one in group] for group in (self.mains, self.inits))
        phase = phase_of(mains, is_over=self._is_over, is_initialized=self._is_initialized)
        ended, ready = phase in ENDED, self._is_ready()
        reason = "PodCompleted" if ended else "" if ready else "ContainersNotReady"
        self._conditions.put("Initialized", "" if self._is_initialized else "ContainersNotInitialized",
                             holds=self._is_initialized)  # fmt: skip
        self._conditions.put("ContainersReady", reason, holds=ready)
        self._conditions.put("Ready", reason, holds=ready)
        found = {
            "phase": phase,
            "observedGeneration": self.manifest["metadata"].get("generation"),
            "conditions": self._conditions.all(),
            "containerStatuses": mains,
            "initContainerStatuses": inits,
            "hostIP": self._host.host_ip,
            "hostIPs": [{"ip": self._host.host_ip}, ONLY],
            "startTime": self._started_at or now(),
        }
        return found | ({"podIP": self.address, "podIPs": [{"ip": self.address}, ONLY]} if self.address else {})

    async def _write_changes(self) -> None:
        while True:
            await self._dirty.wait()
            await self._flush()

    async def _flush(self) -> None:
        """Returns once the status of now, or a later one, is written or has no object any more."""
        async with self._writing:
            while self._dirty.is_set() and not self.gone.is_set():
                self._dirty.clear()
                body = {"metadata": {"uid": self.manifest["metadata"]["uid"]}, "status": self.status()}
                if not await self._is_done("PATCH", f"{self._path()}/status", body, STRATEGIC):
                    self._dirty.set()
                    await asyncio.sleep(RETRY_SECONDS)
            self._dirty.clear()

    async def _delete(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.manifest["metadata"]["uid"]}}
        while not self.gone.is_set():
            if await self._is_done("DELETE", self._path(), body, "application/json"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _is_done(self, method: str, path: str, body: Object, kind: str) -> bool:
        """Whether the call is not to be made again: it succeeded, or it would be refused for ever."""
        try:
            await self._host.api.call(method, path, body, kind=kind)
        except ApiError as error:
            log.warning("%s %s: %s", method, path, error)
            # A conflict of a status is one with the uid of a namesake, or passes: the watch will say which.
            return error.is_final and (method, error.status) != ("PATCH", HTTPStatus.CONFLICT)
        except FAILURES as failure:
            log.warning("%s %s: %r", method, path, failure)
            return False
        return True

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def _release(self) -> None:
        """Gives back address and volumes; logs stay until the object is gone."""
        self._host.give_back(self.address)
        for place in (self.folder / "shm", *self._places.values()):
            if place.is_mount() and place.is_relative_to(self.folder):
                with contextlib.suppress(OSError):
                    unmount(str(place))
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    def forget(self) -> None:
        """Removes what is left of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _termination_log(scratch: Path) -> Path:
    """A file that the container may write a last message to."""
    scratch.mkdir(mode=0o700)
    found = scratch / "termination"
    found.touch()
    found.chmod(0o666)
    return found
