"""The numbers that energy and emissions are computed from: sites, ratings and intensities of clusters over time."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from uuid import UUID

from django.db.models import Q

from billing.engine.carbon import (
    HOUR,
    MILLISECONDS,
    Hours,
    Part,
    Place,
    Rating,
    Site,
    Span,
    grams_an_hour,
    hour_of,
)
from billing.models import CarbonSite, GridIntensity, PowerRating
from clusters.models import Cluster
from tenancy.models import Tenant

PARTS: Mapping[str, Part] = {"gpu": "gpu", "core": "core", "gib": "gib"}


def is_counted() -> bool:
    """Whether any cluster has a site: without one there are no figures."""
    return CarbonSite.objects.exists()


def places_of(cluster_ids: Collection[UUID], start: datetime, until: datetime) -> Mapping[UUID, Place]:
    """What is known of each of these clusters in [start, until)."""
    owners = dict(Cluster.everything.filter(id__in=cluster_ids).values_list("id", "owner__path"))
    roots = {path.partition("/")[0] for path in owners.values()}
    organisations = dict(Tenant.objects.filter(path__in=roots).values_list("path", "id"))
    sites: dict[UUID, list[Site]] = defaultdict(list)
    for one in CarbonSite.objects.filter(cluster__in=cluster_ids, since__lt=until).order_by("since", "id"):
        sites[one.cluster_id].append(Site(one.since, one.region, one.pue_thousandths))
    regions = {site.region for versions in sites.values() for site in versions}
    ratings = _ratings(organisations.values(), until)
    spans = _spans(organisations.values(), regions, start, until)
    return {
        id_: Place(sites[id_], *_of_organisation(ratings, spans, organisations[path.partition("/")[0]]))
        for id_, path in owners.items()
    }


@dataclass(frozen=True, slots=True)
class EmissionRates:
    """Grams of CO2 equivalents an hour that a physical GPU of each model, a core and a GiB emit in a cluster now. A part without a
    rating is missing, and None.
    """

    gpus: Mapping[str, Fraction]
    core: Fraction | None
    gib: Fraction | None


def emission_rates(models: Mapping[UUID, Collection[str]], at: datetime) -> Mapping[UUID, EmissionRates]:
    """The rates of these clusters and their GPU models, without clusters whose site or grid intensity is not known. One query where
    no cluster has a site.
    """
    sited = set(CarbonSite.objects.values_list("cluster_id", flat=True).distinct())
    start = hour_of(at.astimezone(UTC))
    places = places_of([id_ for id_ in models if id_ in sited], start, start + HOUR) if sited else {}
    found = {}
    for id_, place in places.items():
        hours = Hours(place, start, start + HOUR)
        if None in hours.site_at(start):
            continue
        of_models = {model: grams_an_hour(hours, "gpu", model, start) for model in models[id_] if model}
        known = {model: grams for model, grams in of_models.items() if grams is not None}
        found[id_] = EmissionRates(
            known, grams_an_hour(hours, "core", "", start), grams_an_hour(hours, "gib", "", start)
        )
    return found


_Ratings = dict[tuple[UUID | None, Part, str], list[Rating]]
_Spans = list[tuple[UUID | None, str, Span]]


def _of_organisation(
    ratings: _Ratings, spans: _Spans, organisation: UUID
) -> tuple[Mapping[tuple[Part, str], tuple[list[Rating], list[Rating]]], Mapping[str, list[Span]]]:
    parts = {
        (part, model): (ratings.get((organisation, part, model), []), ratings.get((None, part, model), []))
        for _, part, model in ratings
    }
    found: dict[str, list[Span]] = defaultdict(list)
    for owner, region, span in spans:
        if owner in {None, organisation}:
            found[region].append(span)
    return parts, found


def _of(organisations: Collection[UUID]) -> Q:
    return Q(organisation=None) | Q(organisation__in=organisations)


def _ratings(organisations: Collection[UUID], until: datetime) -> _Ratings:
    found: _Ratings = defaultdict(list)
    for one in PowerRating.objects.filter(_of(organisations), since__lt=until).order_by("since", "id"):
        embodied = Fraction(0)
        if one.embodied_grams is not None and one.life_hours is not None:
            embodied = Fraction(one.embodied_grams * 1000, one.life_hours * MILLISECONDS)
        rating = Rating(one.since, one.milliwatts, embodied)
        found[one.organisation_id, PARTS[one.part], one.gpu_model].append(rating)
    return dict(found)


def _spans(organisations: Collection[UUID], regions: Collection[str], start: datetime, until: datetime) -> _Spans:
    rows = GridIntensity.objects.filter(
        _of(organisations), region__in=regions, valid_from__lt=until, valid_until__gt=start
    )
    columns = "organisation_id", "region", "valid_from", "valid_until", "milligrams_per_kwh", "id"
    return [
        (owner, region, Span(begins, ends, intensity, owner is not None, number))
        for owner, region, begins, ends, intensity, number in rows.values_list(*columns)
    ]
