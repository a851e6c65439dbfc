"""GPU models that a person can ask for, and which of them a short name means."""

from collections.abc import Iterable

from clusters.models import Flavor
from clusters.queries import visible_clusters
from placement.values.gpu_names import models_meant
from tenancy.queries import Actor


def gpu_models(actor: Actor) -> tuple[str, ...]:
    """Models that the clusters visible to the actor offer."""
    models = Flavor.objects.filter(cluster__in=visible_clusters(actor)).exclude(gpu_model="")
    return tuple(models.order_by("gpu_model").values_list("gpu_model", flat=True).distinct())


def short_names(actor: Actor, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Each name that means other models than the one it spells, with those that the actor can see: `H100`: `H100-80GB`."""
    known = gpu_models(actor)
    meant = ((name, models_meant(name, known)) for name in sorted(set(names)))
    return tuple((name, ", ".join(models)) for name, models in meant if models and models != [name])
