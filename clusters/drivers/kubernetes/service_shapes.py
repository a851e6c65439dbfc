"""Services, as a cluster's API server shows them."""

from typing import Annotated

import msgspec

from clusters.drivers.port import ServiceSeen

from .shapes import Key, Meta, Name, Struct, Uid, Value, Word

HEADLESS = "None"


class _Owner(Struct):
    uid: Uid = ""


class _ServiceMeta(Meta):
    owner_references: Annotated[list[_Owner], msgspec.Meta(max_length=1000)] | None = None


class _ServiceSpec(msgspec.Struct, rename={"cluster_ip": "clusterIP", "external_ips": "externalIPs"}, gc=False):
    type: Word = ""
    cluster_ip: Word = ""
    external_ips: Annotated[list[Name], msgspec.Meta(max_length=1000)] | None = None
    selector: Annotated[dict[Key, Value], msgspec.Meta(max_length=256)] | None = None


class Service(Struct):
    metadata: _ServiceMeta
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


def service_seen(service: Service) -> ServiceSeen:
    """The port's view of a Service."""
    metadata, spec = service.metadata, service.spec
    return ServiceSeen(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        labels=metadata.labels or {},
        owners=tuple(owner.uid for owner in metadata.owner_references or ()),
        selector=spec.selector or {},
        is_headless=(spec.type, spec.cluster_ip) == ("ClusterIP", HEADLESS) and not spec.external_ips,
        is_terminating=metadata.deletion_timestamp is not None,
    )
