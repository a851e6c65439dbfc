"""One pod: from its binding to one of our nodes until its object is gone."""

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .api import FAILURES, Api, ApiError, Object
from .containers import TERMINATION_LOG, Container
from .environment import Facts, command_of, variables_of
from .images import program_of, variables_of_image
from .names import Named, hostname_of
from .namespaces import MS_NODEV, MS_NOSUID, mount, unmount
from .processes import Mount, Plan
from .reports import Report
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
    """A pod of one of our nodes; `live` ends when its object is gone, and with it the last trace of the pod."""

    def __init__(self, manifest: Object, host: Host) -> None:
        self.manifest = manifest
        self.namespace, self.name = str(manifest["metadata"]["namespace"]), str(manifest["metadata"]["name"])
        self.address = ""
        self.folder = host.root / "pods" / manifest["metadata"]["uid"]
        self.gone = asyncio.Event()
        self._host = host
        self._places: dict[str, Path] = {}
        self._report = Report(manifest, host.api, self.status)
        self._stopping, self._mains_over, self._is_unwanted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure = ("", "")
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

    def update(self, manifest: Object) -> None:
        """Takes the object as it is now; a deletion begins, or its time becomes shorter."""
        self.manifest = manifest
        if manifest["metadata"].get("deletionTimestamp"):
            self._stop_within(manifest["metadata"].get("deletionGracePeriodSeconds") or 0)
            self._is_unwanted.set()

    def vanish(self) -> None:
        """The object is gone: ends everything now."""
        self.gone.set()
        self._report.is_gone = True
        self._stop_within(0)
        self._is_unwanted.set()

    def _stop_within(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self._deadline = ends if self._deadline is None else min(ends, self._deadline)
        self._stopping.set()

    def seconds_left(self) -> float:
        """Until what still runs is killed."""
        return (self._deadline or 0) - time.monotonic()

    def changed(self) -> None:
        """Has the status written, and the names of the pod's namespace."""
        self._report.changed()
        self._host.names_changed(self.namespace)

    async def live(self) -> None:
        """Runs the pod, writes its last status, and deletes the object once that is asked for."""
        writer = asyncio.create_task(self._report.keep())
        try:
            if self.manifest.get("status", {}).get("phase") not in ENDED:
                self._inherit()
                if not self._is_over:
                    await self._work()
                await self._report.flush()
            self._is_over = True
            await self._is_unwanted.wait()
            await self._report.delete()
            await self.gone.wait()
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            shutil.rmtree(self.folder, ignore_errors=True)

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
        deadline = asyncio.create_task(self._watch_deadline())
        try:
            if await self._prepare():
                await self._run()
        finally:
            deadline.cancel()
            self._close()
            self._release()

    async def _watch_deadline(self) -> None:
        if seconds := self.manifest["spec"].get("activeDeadlineSeconds"):
            await asyncio.sleep(seconds)
            self._fail(
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
                self.grace_seconds(),
            )

    def _fail(self, reason: str, message: str, seconds: float) -> None:
        """The pod fails for a reason that is none of its containers'."""
        self._failure = (reason, message)
        self._stop_within(seconds)

    def grace_seconds(self) -> float:
        """How long its containers have to end, unless a deletion or a probe says otherwise."""
        found: float = self.manifest["spec"].get("terminationGracePeriodSeconds", 30)
        return found

    async def _contain(self, container: Container) -> int | None:
        """Runs a container; a defect of the kubelet ends its pod, and says so, and not the other pods."""
        try:
            return await container.run()
        except Exception as error:
            log.exception("%s/%s", self.namespace, self.name)
            self._fail("KubeletFailed", repr(error), 0)
            return None

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
                    sidecars.append(asyncio.create_task(self._contain(container)))
                    await self._begun(container)
                elif await self._contain(container) != 0:
                    return
                else:
                    container.is_ready = True
                if self._stopping.is_set():
                    return
            self._is_initialized = True
            self.changed()
            await asyncio.gather(*(self._contain(container) for container in self.mains))
        finally:
            if self._deadline is None:
                self._deadline = time.monotonic() + self.grace_seconds()
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
                log.warning("%s/%s: %r", self.namespace, self.name, failure)
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
        phase = phase_of(mains, is_over=self._is_over, has_failed=bool(self._failure[0]) or not self._is_initialized)
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
        if self._failure[0]:
            found |= {"reason": self._failure[0], "message": self._failure[1]}
        return found | ({"podIP": self.address, "podIPs": [{"ip": self.address}, ONLY]} if self.address else {})

    def _release(self) -> None:
        """Gives back address and volumes; logs stay until the object is gone."""
        self._host.give_back(self.address)
        for place in (self.folder / "shm", *self._places.values()):
            if place.is_mount() and place.is_relative_to(self.folder):
                with contextlib.suppress(OSError):
                    unmount(str(place))
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)


def _termination_log(scratch: Path) -> Path:
    """A file that the container may write a last message to."""
    scratch.mkdir(mode=0o700)
    found = scratch / "termination"
    found.touch()
    found.chmod(0o666)
    return found
