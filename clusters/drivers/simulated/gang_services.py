"""Services of a simulated cluster. They have no effect: simulated pods use no network."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from clusters.drivers.port import AlreadyExists, NotThere, Refused, ServiceSeen

from .store import Store

HEADLESS = "None"


def create_service(store: Store, manifest: Mapping[str, Any]) -> None:
    """Stores the Service, unless an API server would refuse it. Call inside `store.write()`."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    if store.namespace_labels(namespace) is None:
        raise NotThere(f'namespaces "{namespace}" not found', status=404)
    if spec.get("clusterIP") != HEADLESS and not spec.get("ports"):
        raise Refused("spec.ports: Required value", status=422)
    if store.service(namespace, name) is not None:
        raise AlreadyExists(f'services "{name}" already exists', status=409)
    store.add_service(namespace, str(uuid4()), manifest)
    owners = metadata.get("ownerReferences", ())
    if owners and all(store.job_by_uid(owner["uid"]) is None for owner in owners):
        # the garbage collector's step: it was created too late
        for owner in owners:
            store.disown(namespace, owner["uid"])


def service_seen(store: Store, namespace: str, name: str) -> ServiceSeen:
    """The port's view of the Service of that name. Raises NotThere if there is none."""
    found = store.service(namespace, name)
    if found is None:
        raise NotThere(f'services "{name}" not found', status=404)
    uid, manifest = found
    metadata, spec = manifest["metadata"], manifest["spec"]
    return ServiceSeen(
        namespace=namespace,
        name=name,
        uid=uid,
        labels=metadata.get("labels", {}),
        owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences", ())),
        selector=spec.get("selector", {}),
        is_headless=(spec.get("type", "ClusterIP"), spec.get("clusterIP")) == ("ClusterIP", HEADLESS)
        and not spec.get("externalIPs"),
        is_terminating=False,
    )
