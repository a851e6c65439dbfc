"""Sets and removes the limits of classes of work."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models.functions import Now

from foundation.outbox import announce
from quotas import locks
from quotas.models import ClassLimit


def put_class_limits(class_name: str, most: Mapping[str, int | None]) -> None:
    """Makes the limits of a class those in `most`, by resource in base units; None is no limit. Others of the class remain.

    A new limit counts what the class holds already. If a limit is below that, its work continues, and starts nothing new until
    enough has ended. The caller permits and audits the change, and locks no row before.
    """
    own = ClassLimit.objects.filter(class_name=class_name)
    with transaction.atomic():
        known = dict(own.values_list("resource", "most"))
        new = {resource: amount for resource, amount in most.items() if amount is not None and resource not in known}
        if new:
            locks.stop_all_takers()  # else the database refuses what a cycle judged without the new limit
        for resource, amount in new.items():
            ClassLimit.objects.create(class_name=class_name, resource=resource, most=amount)
        # Only now, because what ends holds has locked the holds' table before these rows.
        changed = {resource for resource, amount in known.items() if most.get(resource, amount) != amount}
        for limit in locks.lock_class_limits(class_name, changed):
            wanted = most[limit.resource]
            if wanted is None:
                limit.delete()
            else:
                ClassLimit.objects.filter(id=limit.id).update(most=wanted, updated_at=Now())
        if new or changed:
            announce("cycle")
