"""Network attachments of clusters that jobs may name."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from foundation.ids import new_id
from tenancy.models import NAME_PATTERN, Tenant

from .clusters import Cluster


class Network(models.Model):
    """A NetworkAttachmentDefinition by its logical name on a cluster. Jobs of the tenant and its descendants may use it. Without a
    namespace, the namespace of each of these tenants has a definition of that name.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="networks")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="networks")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=10, choices=[("multus", "multus")], default="multus", db_default="multus")
    definition = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "name"], name="network_name_is_unique_on_its_cluster"),
            models.CheckConstraint(condition=Q(name__regex=NAME_PATTERN), name="network_name_is_a_dns_label"),
            models.CheckConstraint(condition=Q(kind="multus"), name="network_kind_is_known"),
            models.CheckConstraint(
                condition=Q(definition__regex=NAME_PATTERN), name="network_definition_is_a_dns_label"
            ),
            models.CheckConstraint(
                condition=Q(namespace="") | Q(namespace__regex=NAME_PATTERN), name="network_namespace_is_a_dns_label"
            ),
        ]

    def __str__(self) -> str:
        return self.name
