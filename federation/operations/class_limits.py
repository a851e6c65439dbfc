"""Sets the limits of priority classes at tenants."""

from django.db import transaction

from federation.locks import rewrite_priority_classes
from federation.queries.priority_classes import visible_classes
from foundation.problems import Invalid
from quotas.models import ClassLimit
from quotas.operations import put_class_limit
from tenancy.queries import Actor


def put_tenant_class_limit(
    actor: Actor, tenant_path: str, class_name: str, resource: str, *, most: int
) -> tuple[ClassLimit, bool]:
    """The limit on what all jobs of a priority class may hold at a tenant and below it after the change, and whether it is new.
    `most` is in base units.

    The actor must see the class and manage quotas one level above the tenant. Raises NotFound, NotAllowedHere and Invalid.
    """
    with transaction.atomic():
        rewrite_priority_classes()  # a class that is removed takes its limits along: none may come after it
        if not visible_classes(actor).filter(name=class_name).exists():
            raise Invalid.field("priority_class", "unknown_value", "there is no such priority class")
        return put_class_limit(actor, tenant_path, class_name, resource, most=most)
