"""The port's methods as Kubernetes requests."""

import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import quote

import msgspec

from clusters.drivers.address import ClusterAddress
from clusters.drivers.exchanges import PortAnswer, PortRequest, PortStream
from clusters.drivers.port import (
    AS_CREATED,
    AlreadyExists,
    Ambiguous,
    DriverError,
    JobSeen,
    NotThere,
    PodSeen,
    Refused,
    RulesSeen,
    ServiceSeen,
    Throttled,
    WatchEvent,
    checked_identity,
)
from clusters.engine.escapes import Answered, Rehearsal
from clusters.engine.inventory import INSTALL_LABEL
from clusters.engine.permissions import Right
from clusters.engine.weights import weight_of_labelled, weight_of_node
from foundation import clock

from .decoding import decode
from .device_api import DeviceApi
from .dry_runs import DryRuns
from .ensured import Ensured
from .forwarding import ask, open_port
from .node_shapes import Node, node_seen
from .reflector import Kind, Reflector, list_all
from .review_shapes import Access, Groups, Rules, Version
from .service_shapes import Service, service_seen
from .shapes import Bare, Job, Page, Pod, WhoItIs, job_seen, pod_seen
from .wire import Expired, Limits, Wire

_RULES_BYTES = 512 * 1024
_VERSION = re.compile(r"[!-~]{0,100}")
_UID = re.compile(r"[!-~]{1,64}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"
_NOT_CREATED = "the cluster did not create the job's Secret"
_WRITER = "fieldManager=switchyard&fieldValidation=Strict"
_POD_SECURITY = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}


_version_decoder = msgspec.json.Decoder(Version)
_groups_decoder = msgspec.json.Decoder(Groups)
_access_decoder = msgspec.json.Decoder(Access)
_rules_decoder = msgspec.json.Decoder(Rules)
_bare_decoder = msgspec.json.Decoder(Bare)
_who_it_is = msgspec.json.Decoder(WhoItIs)
_job_decoder = msgspec.json.Decoder(Job)
_service_decoder = msgspec.json.Decoder(Service)
_node_pages = msgspec.json.Decoder(Page[Node])
_pod_pages = msgspec.json.Decoder(Page[Pod])
_job_pages = msgspec.json.Decoder(Page[Job])
_node_decoder = msgspec.json.Decoder(Node)
_pod_decoder = msgspec.json.Decoder(Pod)


MOST_NODES = 10_000
MOST_PODS = 200_000
MOST_JOBS = 100_000
"""Kubernetes supports up to 5,000 nodes and 150,000 pods."""


class KubernetesDriver:
    """A ClusterDriver for one API server. Belongs to the event loop that first uses it."""

    def __init__(self, address: ClusterAddress, install_id: str, limits: Limits | None = None) -> None:
        self._wire = Wire(address, limits or Limits())
        self._install_id = install_id
        self._ensured = Ensured()
        self._devices = DeviceApi(self._wire)
        self._dry_runs = DryRuns(self._wire, self._devices)
        ours = f"{INSTALL_LABEL}={install_id}"
        self._nodes = Kind(
            "/api/v1/nodes", "", _node_pages, _node_decoder, node_seen, _version_of, MOST_NODES, weight_of_node
        )
        self._pods = Kind(
            "/api/v1/pods", "", _pod_pages, _pod_decoder, pod_seen, _version_of, MOST_PODS, weight_of_labelled
        )
        self._jobs = Kind(
            "/apis/batch/v1/jobs", ours, _job_pages, _job_decoder, job_seen, _version_of, MOST_JOBS, weight_of_labelled
        )

    async def version(self) -> str:
        """The server's version, such as `v1.36.2`."""
        version = decode(_version_decoder, await self._wire.call("GET", "/version")).git_version
        if _VERSION.fullmatch(version) is None:
            raise Ambiguous("the server's version is not a version number")
        return version

    async def identity(self) -> str:
        """The uid of the kube-system namespace, which never changes: at half the cost from the server's own cache."""
        said = decode(_who_it_is, await self._wire.call("GET", "/api/v1/namespaces/kube-system?resourceVersion=0"))
        return checked_identity(said.metadata.uid)

    async def clock_skew_ms(self) -> int:
        """The smallest clock difference that explains the Date header, which has whole seconds; 0 if none is needed."""
        before = clock.now()
        _, header = await self._wire.call_for_date("/version")
        after = clock.now()
        try:
            date = parsedate_to_datetime(header)
            least = (date - after).total_seconds() * 1000
            most = (date - before).total_seconds() * 1000 + 1000
        except (TypeError, ValueError, OverflowError):
            raise Ambiguous("the server's answer carries no readable Date") from None
        return 0 if least <= 0 <= most else round(least if least > 0 else most)

    async def rules(self, namespace: str) -> RulesSeen:
        """The rights of our credential in `namespace`."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        answer = await self._wire.call(
            "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body, most_bytes=_RULES_BYTES
        )
        status = decode(_rules_decoder, answer).status
        return RulesSeen(status.resource_rules or (), is_complete=not status.incomplete)

    async def may(self, right: Right, namespace: str = "") -> bool:
        """Whether our credential has this right there; without a namespace, everywhere."""
        resource, _, subresource = right.resource.partition("/")
        asked = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, "name": right.name, "namespace": namespace}},
        }
        answer = await self._wire.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return decode(_access_decoder, answer).status.allowed

    async def api_groups(self) -> frozenset[str]:
        """The API groups that the cluster serves."""
        groups = decode(_groups_decoder, await self._wire.call("GET", "/apis")).groups
        return frozenset(group.name for group in groups)

    async def rehearse(self, rehearsal: Rehearsal) -> Answered:
        """The server's response to a dry run."""
        return await self._dry_runs.rehearse(rehearsal)

    async def any_pod(self, namespace: str) -> str:
        """The name of the first pod there."""
        return await self._dry_runs.any_pod(_safe(namespace))

    async def ensure_namespace(
        self, name: str, labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Creates the namespace, or checks that an existing one is ours, enforces `restricted` and has the policies.

        The driver remembers it for a while, or until the namespace proves to be gone; meanwhile a call costs no
        request.
        """
        asked = (labels, policies)
        if not self._ensured.stands(name, asked):
            async with self._ensured.gate(name):
                if not self._ensured.stands(name, asked):
                    await self._make_namespace(name, labels)
                    for manifest in policies:
                        await self.put_network_policy(manifest)
                    self._ensured.remember(name, asked)

    async def put_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """Creates the NetworkPolicy or updates the existing one to this manifest, by server-side apply."""
        metadata = manifest["metadata"]
        folder = f"/apis/networking.k8s.io/v1/namespaces/{_safe(str(metadata['namespace']))}/networkpolicies"
        await self._wire.call(
            "PATCH", f"{folder}/{_safe(str(metadata['name']))}?{_WRITER}&force=true", manifest, _APPLY
        )

    async def ensure_claim_template(self, manifest: Mapping[str, Any]) -> None:
        """Ensures that the ResourceClaimTemplate exists, by server-side apply; the driver remembers it as it does a
        namespace.
        """
        namespace, name = (_safe(str(manifest["metadata"][key])) for key in ("namespace", "name"))
        path = f"{namespace}/{name}"
        if not self._ensured.stands(path, manifest):
            async with self._ensured.gate(path):
                if not self._ensured.stands(path, manifest):
                    target, body = await self._devices.claim_template(manifest)
                    await self._in_namespace(
                        namespace, self._wire.call("PATCH", f"{target}?{_WRITER}&force=true", body, _APPLY)
                    )
                    self._ensured.remember(path, manifest)

    async def _make_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        wanted = {**labels, **_POD_SECURITY, INSTALL_LABEL: self._install_id}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _safe(name), "labels": wanted}}
        try:
            await self._wire.call("POST", f"/api/v1/namespaces?{_WRITER}", body)
        except AlreadyExists:
            found = decode(_bare_decoder, await self._wire.call("GET", f"/api/v1/namespaces/{name}")).metadata
            present = found.labels or {}
            if present.get(INSTALL_LABEL) != self._install_id:
                raise Refused(f"the namespace {name} exists and does not belong to Switchyard", status=409) from None
            if found.deletion_timestamp is not None:
                raise Refused(f"the namespace {name} is being deleted", status=409) from None
            if present.get("pod-security.kubernetes.io/enforce") != "restricted":
                raise Refused(
                    f"the namespace {name} does not enforce the pod security level `restricted`", status=409
                ) from None

    async def create_service(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Service."""
        namespace = _safe(str(manifest["metadata"]["namespace"]))
        await self._in_namespace(
            namespace, self._wire.call("POST", f"/api/v1/namespaces/{namespace}/services?{_WRITER}", manifest)
        )

    async def get_service(self, namespace: str, name: str) -> ServiceSeen:
        """The Service as it is now."""
        answer = await self._wire.call("GET", f"/api/v1/namespaces/{_safe(namespace)}/services/{_safe(name)}")
        return service_seen(decode(_service_decoder, answer))

    async def create_secret(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Secret. The server's own message may repeat its values, so an error has the status alone."""
        namespace = _safe(str(manifest["metadata"]["namespace"]))
        call = self._wire.call("POST", f"/api/v1/namespaces/{namespace}/secrets?{_WRITER}", manifest)
        try:
            await self._in_namespace(namespace, call)
        except Throttled as error:
            raise Throttled(_NOT_CREATED, retry_after_seconds=error.retry_after_seconds) from None
        except DriverError as error:
            raise type(error)(f"{_NOT_CREATED} (status {error.status})", status=error.status) from None

    async def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the Job; returns its uid."""
        namespace = _safe(str(manifest["metadata"]["namespace"]))
        answer = await self._in_namespace(
            namespace, self._wire.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs?{_WRITER}", manifest)
        )
        uid = decode(_bare_decoder, answer).metadata.uid
        if _UID.fullmatch(uid) is None:
            raise Ambiguous("the created Job has no valid uid")
        return uid

    async def _in_namespace(self, namespace: str, call: Awaitable[bytes]) -> bytes:
        """The response to a call that creates an object in a namespace. If the namespace is gone, the driver forgets
        it.
        """
        try:
            return await call
        except NotThere:
            self._ensured.forget(namespace)
            raise

    async def get_job(self, namespace: str, name: str) -> JobSeen:
        """The Job as it is now."""
        return job_seen(decode(_job_decoder, await self._wire.call("GET", _job_path(namespace, name))))

    async def release_job(self, namespace: str, name: str, uid: str, template_patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job with this uid, if its spec is as it was created. The server tests both when it makes the change, so a
        release that arrives late or once more undoes no suspension of others.
        """
        hints = template_patch.get("spec", {})
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/generation", "value": AS_CREATED},
            {"op": "replace", "path": "/spec/suspend", "value": False},
            *({"op": "add", "path": f"/spec/template/spec/{field}", "value": value} for field, value in hints.items()),
            # One empty entry clears the record of who set which field: nothing reads it, and each change would pay for it.
            {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
        ]
        await self._wire.call("PATCH", f"{_job_path(namespace, name)}?{_WRITER}", patch, _JSON_PATCH)

    async def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid, its pods first: once the Job is gone, so are its pods."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Foreground",
        }
        await self._wire.call("DELETE", _job_path(namespace, name), body)

    async def list_jobs(self) -> Sequence[JobSeen]:
        """All Jobs that carry our install label."""
        return cast("list[JobSeen]", await self._listed(self._jobs))

    async def list_pods(self, namespace: str, job_name: str) -> Sequence[PodSeen]:
        """The pods of one Job."""
        kind = Kind(
            f"/api/v1/namespaces/{_safe(namespace)}/pods",
            f"batch.kubernetes.io/job-name={_safe(job_name)}",
            _pod_pages,
            _pod_decoder,
            pod_seen,
            _version_of,
            MOST_PODS,
            weight_of_labelled,
        )
        return cast("list[PodSeen]", await self._listed(kind))

    async def open_gate(
        self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Removes only our gate from the pod with this uid, and sets its node preferences in the same patch."""
        spec: dict[str, Any] = {"schedulingGates": [{"name": gate, "$patch": "delete"}]}
        if wishes:
            preferred = {"preferredDuringSchedulingIgnoredDuringExecution": list(wishes)}
            spec["affinity"] = {"nodeAffinity": preferred}
        await self._wire.call(
            "PATCH", f"{_pod_path(namespace, pod)}?{_WRITER}", {"metadata": {"uid": uid}, "spec": spec}, _STRATEGIC
        )

    async def read_log(
        self, namespace: str, pod: str, *, tail_lines: int, limit_bytes: int, container: str = ""
    ) -> str:
        """The end of a container's log, at most `limit_bytes`."""
        which = f"&container={_safe(container)}" if container else ""
        query = f"tailLines={int(tail_lines)}&limitBytes={int(limit_bytes)}{which}"
        path = f"{_pod_path(namespace, pod)}/log?{query}"
        raw = await self._wire.call("GET", path, most_bytes=limit_bytes, is_cut=True)
        return raw[:limit_bytes].decode("utf-8", "replace")

    async def ask_pod(self, namespace: str, pod: str, port: int, request: PortRequest) -> PortAnswer:
        """The answer of a program in a pod."""
        return await ask(self._wire, _pod_path(namespace, pod), port, request)

    def open_port(self, namespace: str, pod: str, port: int) -> AbstractAsyncContextManager[PortStream]:
        """A connection to a program in a pod."""
        return open_port(self._wire, _pod_path(namespace, pod), port)

    def watch_nodes(self) -> AsyncIterator[WatchEvent]:
        """All nodes."""
        return Reflector(self._wire, self._nodes).events()

    def watch_pods(self) -> AsyncIterator[WatchEvent]:
        """All pods of the cluster."""
        return Reflector(self._wire, self._pods).events()

    def watch_jobs(self) -> AsyncIterator[WatchEvent]:
        """All Jobs that carry our install label."""
        return Reflector(self._wire, self._jobs).events()

    async def device_classes(self) -> frozenset[str]:
        """The names of the DeviceClasses."""
        return await self._devices.classes()

    def watch_slices(self) -> AsyncIterator[WatchEvent]:
        """All ResourceSlices."""
        return self._devices.watch_slices()

    def watch_claims(self) -> AsyncIterator[WatchEvent]:
        """All ResourceClaims."""
        return self._devices.watch_claims()

    async def close(self) -> None:
        """Closes every connection."""
        await self._wire.close()

    async def _listed(self, kind: Kind[Any]) -> list[Any]:
        """A whole list; reads it once more if its continue token expired."""
        try:
            objects, _ = await list_all(self._wire, kind)
        except Expired:
            objects, _ = await list_all(self._wire, kind)
        return objects


def _version_of(found: Node | Pod | Job) -> str:
    return found.metadata.resource_version


def _job_path(namespace: str, name: str) -> str:
    return f"/apis/batch/v1/namespaces/{_safe(namespace)}/jobs/{_safe(name)}"


def _pod_path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{_safe(namespace)}/pods/{_safe(pod)}"


def _safe(name: str) -> str:
    """A name that is safe in a path. Our names always are; this is the second check."""
    if _NAME.fullmatch(name) is None:
        raise NotThere(f"{quote(name[:60])} is not a valid object name")
    return name
