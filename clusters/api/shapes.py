"""Request and response bodies of clusters. Requests carry credentials; no response has a field for them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.validators import RegexValidator
from rest_framework import serializers

from clusters.engine.connection import ConnectionFields
from clusters.models import AvoidedNode, Cluster, ClusterEvent, Node
from clusters.operations import Changes, Wanted
from clusters.queries import FlavorSummary, flavor_summary, freshness_of, shown_reasons
from foundation.clock import now
from foundation.plain_json import instant
from foundation.shapes import Instant, Labels, StrictShape, Text
from tenancy.models import NAME_PATTERN

_WORD = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
_CREDENTIALS = ("ca_pem", "token", "client_certificate_pem", "client_key_pem")


class Lines(serializers.CharField):
    """A JSON string that may contain line breaks, such as PEM or YAML. Numbers are not converted to text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


def _secret(help_text: str) -> Lines:
    return Lines(
        write_only=True, required=False, default="", allow_blank=True, max_length=64 * 1024, help_text=help_text
    )


def _kubeconfig(help_text: str) -> Lines:
    return Lines(
        write_only=True, required=False, default="", allow_blank=True, trim_whitespace=False, help_text=help_text
    )


def _word(help_text: str) -> Text:
    only_words = RegexValidator(_WORD, "letters, digits and `._-` only")
    return Text(required=False, allow_blank=True, max_length=63, validators=[only_words], help_text=help_text)


class ClusterRegistration(StrictShape):
    """A cluster to register: `server`, `ca_pem` and one credential, or a `kubeconfig` in place of all three."""

    name = Text(
        max_length=63,
        validators=[RegexValidator(NAME_PATTERN, "a DNS label: a-z, 0-9 and -")],
        help_text="A DNS label, unique in its organisation.",
    )
    tenant = Text(
        required=False,
        default="",
        max_length=1100,
        help_text="Path of the tenant that owns it. It serves this tenant and every tenant below; by default your organisation.",
    )
    server = Text(required=False, default="", allow_blank=True, max_length=1000, help_text="https://host[:port]")
    ca_pem = _secret("Certificates of the server's authority in PEM; empty for the system's authorities.")
    token = _secret("Bearer token of the ServiceAccount in docs/reference/cluster-access.yaml.")
    client_certificate_pem = _secret("Client certificate in PEM, instead of a token.")
    client_key_pem = _secret("Its private key in PEM, without a pass phrase.")
    kubeconfig = _kubeconfig("YAML with plain fields only: nothing in it is run, fetched or read from disk.")
    region = _word("Such as eu-west-1.")
    provider = _word("Such as aws, gcp, on-prem.")
    labels = Labels(required=False)


class ClusterPatch(StrictShape):
    """The fields to change; omitted fields keep their values. New credentials are probed before they replace the old ones."""

    region = _word("Such as eu-west-1.")
    provider = _word("Such as aws, gcp, on-prem.")
    labels = Labels(required=False)
    ca_pem = _secret("New authorities of the server.")
    token = _secret("A new bearer token.")
    client_certificate_pem = _secret("A new client certificate.")
    client_key_pem = _secret("Its private key.")
    kubeconfig = _kubeconfig(
        "A new credential and authorities as a kubeconfig of the same server, instead of the four above."
    )


class ReasonShown(serializers.Serializer[Any]):
    """Why a cluster is not `ready`."""

    code = serializers.CharField()
    message = serializers.CharField()


class FlavorShown(serializers.Serializer[Any]):
    """What some nodes of a cluster offer, and how much of it is free as last observed."""

    name = serializers.CharField()
    vendor = serializers.CharField()
    gpu_model = serializers.CharField()
    gpu_memory_mib = serializers.IntegerField()
    sharing = serializers.CharField(help_text="whole, mig:PROFILE or timeslice:N")
    capacity_type = serializers.CharField(help_text="on_demand, spot or reserved")
    slice_hosts = serializers.IntegerField(
        help_text="Number of nodes that make up one accelerator; a gang stays inside one."
    )
    unplaceable = serializers.CharField(allow_blank=True, help_text="Why no job can start on it; otherwise empty.")
    nodes = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Units in all: those below, each counted once.")
    free = serializers.IntegerField(
        help_text="Idle and available: the cluster and the node take new work and were observed recently."
    )
    used = serializers.IntegerField(help_text="In use by jobs of this gateway.")
    used_by_others = serializers.IntegerField(help_text="In use by pods of others.")
    out_of_service = serializers.IntegerField(help_text="Idle, on a node or a cluster that takes no new work.")
    unseen = serializers.IntegerField(help_text="Last seen idle, on a cluster that is stale or does not answer.")
    largest_free_block = serializers.IntegerField(help_text="Most free units on one node.")


class ClusterShown(serializers.Serializer[Any]):
    """A registered cluster. No response contains a credential."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tenant = serializers.CharField(help_text="Path of the owner.")
    server = serializers.CharField()
    region = serializers.CharField()
    provider = serializers.CharField()
    labels = serializers.DictField(child=serializers.CharField())
    state = serializers.CharField(help_text="ready, degraded, unreachable, auth_failed, cordoned or draining")
    reasons = ReasonShown(many=True)
    identity = serializers.CharField(help_text="uid of its kube-system namespace, pinned at registration.")
    kubernetes_version = serializers.CharField()
    capabilities = serializers.ListField(child=serializers.CharField(), help_text="Other software found there: kueue.")
    credential_expires_at = Instant(
        allow_null=True, help_text="When its token or certificate expires, as it states; null if it does not."
    )
    last_seen_at = Instant(allow_null=True)
    observed_at = Instant(allow_null=True)
    is_stale = serializers.BooleanField(help_text="Observed too long ago to get new work; `reasons` says how long.")
    created_at = Instant()
    flavors = FlavorShown(many=True)


class NodeShown(serializers.Serializer[Any]):
    """A node as last observed."""

    name = serializers.CharField()
    is_ready = serializers.BooleanField()
    is_schedulable = serializers.BooleanField()
    domain = serializers.ListField(child=serializers.CharField(allow_blank=True))
    labels = serializers.DictField(child=serializers.CharField())
    taints = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))
    devices = serializers.ListField(child=serializers.DictField())
    used_devices = serializers.DictField(child=serializers.IntegerField())
    cpu = serializers.CharField()
    memory = serializers.CharField()
    pods = serializers.IntegerField()
    observed_at = Instant()


class AvoidedNodeShown(serializers.Serializer[Any]):
    """A period in which jobs avoid a node because it made jobs fail."""

    id = serializers.UUIDField()
    node = serializers.CharField()
    reason = serializers.CharField()
    evidence = serializers.DictField(help_text="The numbers that the reason is based on.")
    began_at = Instant()
    until_at = Instant()
    ended_at = Instant(allow_null=True, help_text="Null while jobs avoid it.")
    ended_by = serializers.CharField(allow_blank=True, help_text="Who ended it early; empty if its time did.")


class ClusterEventShown(serializers.Serializer[Any]):
    """An event in the history of a cluster."""

    id = serializers.IntegerField()
    at = Instant()
    kind = serializers.CharField()
    message = serializers.CharField()


def wanted_of(body: Mapping[str, Any]) -> Wanted:
    """The registration that a body asks for."""
    return Wanted(
        name=body["name"],
        tenant=body["tenant"],
        fields=ConnectionFields(server=body["server"], **{name: body[name] for name in _CREDENTIALS}),
        kubeconfig=body["kubeconfig"],
        region=body.get("region", ""),
        provider=body.get("provider", ""),
        labels=body.get("labels", {}),
    )


def changes_of(body: Mapping[str, Any]) -> Changes:
    """The changes that a body asks for."""
    return Changes(
        region=body.get("region"),
        provider=body.get("provider"),
        labels=body.get("labels"),
        access=ConnectionFields(**{name: body.get(name, "") for name in _CREDENTIALS}),
        kubeconfig=body.get("kubeconfig", ""),
    )


def show_cluster(cluster: Cluster) -> dict[str, Any]:
    """One cluster as the API shows it."""
    return show_clusters([cluster])[0]


def show_clusters(clusters: Sequence[Cluster]) -> list[dict[str, Any]]:
    """The clusters with their flavors, in two queries."""
    at = now()
    flavors = flavor_summary(clusters, at)
    return [_cluster(cluster, flavors[cluster.id], at) for cluster in clusters]


def _cluster(cluster: Cluster, flavors: Sequence[FlavorSummary], at: datetime) -> dict[str, Any]:
    return {
        "id": str(cluster.id),
        "name": cluster.name,
        "tenant": cluster.owner.path,
        "server": cluster.server,
        "region": cluster.region,
        "provider": cluster.provider,
        "labels": cluster.labels,
        "state": cluster.state,
        "reasons": shown_reasons(cluster, at),
        "identity": cluster.identity,
        "kubernetes_version": cluster.kubernetes_version,
        "capabilities": ["kueue"] if cluster.has_kueue else [],
        "credential_expires_at": instant(cluster.credential_expires_at),
        "last_seen_at": instant(cluster.last_seen_at),
        "observed_at": instant(cluster.observed_at),
        "is_stale": freshness_of(cluster, at).is_stale,
        "created_at": instant(cluster.created_at),
        "flavors": [show_flavor(flavor) for flavor in flavors],
    }


def show_flavor(flavor: FlavorSummary) -> dict[str, Any]:
    """One flavor of a cluster in numbers."""
    count = flavor.count
    shown = asdict(flavor)
    del shown["id"], shown["count"]
    return shown | {
        "total": count.total,
        "free": count.free,
        "used": count.ours,
        "used_by_others": count.others,
        "out_of_service": count.out_of_service,
        "unseen": count.unseen,
    }


def show_node(node: Node) -> dict[str, Any]:
    """A node as the API shows it; quantities as Kubernetes writes them."""
    return {
        "name": node.name,
        "is_ready": node.is_ready,
        "is_schedulable": node.is_schedulable,
        "domain": node.domain,
        "labels": node.labels,
        "taints": node.taints,
        "devices": node.devices,
        "used_devices": node.used_devices,
        "cpu": f"{node.cpu_millicores}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": node.pods,
        "observed_at": instant(node.observed_at),
    }


def show_avoided(avoided: AvoidedNode) -> dict[str, Any]:
    """A period in which a node is avoided, as the API shows it."""
    return {
        "id": str(avoided.id),
        "node": avoided.node,
        "reason": avoided.reason,
        "evidence": avoided.evidence,
        "began_at": instant(avoided.began_at),
        "until_at": instant(avoided.until_at),
        "ended_at": instant(avoided.ended_at),
        "ended_by": avoided.ended_by,
    }


def show_event(event: ClusterEvent) -> dict[str, Any]:
    """An event as the API shows it."""
    return {"id": event.id, "at": instant(event.at), "kind": event.kind, "message": event.message}
