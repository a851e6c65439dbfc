"""The price book as a file has it: what each rate costs by date, with its corrections."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from billing.engine.corrected import Correction, correction_id
from billing.engine.price_book import Book, book_of
from billing.engine.price_file import RateName, price_file_text
from billing.engine.rating import PriceSpan
from billing.models import Price, PriceCorrection, Rate
from clusters.models import Cluster
from clusters.queries import cluster_by_name, visible_clusters
from foundation.clock import now
from foundation.problems import NotFound
from tenancy.queries import Actor

NOT_IN_THE_FILE = "A price that came from own costs is here as its amount: a file has no own costs."


def price_books(rates: Iterable[Rate], at: datetime) -> Mapping[int, Book]:
    """What these rates cost by date, by the id of the rate; a rate without prices and corrections has none."""
    ids = [rate.id for rate in rates]
    spans: dict[int, list[tuple[PriceSpan, Decimal | None]]] = defaultdict(list)
    corrections: dict[int, list[Correction]] = defaultdict(list)
    for row in Price.objects.filter(rate__in=ids):
        span = PriceSpan(
            row.id, row.unit_price, row.currency, row.valid.lower, row.valid.upper, row.cpu_price, row.memory_price
        )
        spans[row.rate_id].append((span, row.interruptions_per_hour))
    for correction in PriceCorrection.objects.filter(rate__in=ids):
        span = PriceSpan(
            correction_id(correction.id),
            correction.unit_price,
            correction.currency,
            correction.span.lower,
            correction.span.upper,
            correction.cpu_price,
            correction.memory_price,
        )
        corrections[correction.rate_id].append(Correction(correction.id, span))
    return {id_: book_of(spans[id_], corrections[id_], at) for id_ in {*spans, *corrections}}


def rates_of(clusters: Collection[Cluster]) -> Sequence[Rate]:
    """The rates of these clusters, in the order of a file."""
    rates = Rate.objects.filter(cluster__in=clusters).select_related("cluster__owner")
    return list(rates.order_by("cluster__name", "cluster__owner__path", "flavor", "capacity_type"))


def cluster_of_rate(actor: Actor, name: RateName) -> Cluster:
    """The cluster that a file names. Raises NotFound, also where the name is that of several clusters and no owner is given."""
    found = visible_clusters(actor).filter(name=name.cluster)
    found = found.filter(owner__path=name.owner) if name.owner else found
    clusters = list(found[:2])
    if len(clusters) != 1:
        raise NotFound
    return clusters[0]


def price_file(actor: Actor, cluster: str = "") -> str:
    """The prices of the clusters that the actor may see, or of one of them, as a file. A plan of it changes nothing.

    Raises NotFound for a cluster that they may not see.
    """
    visible = list(visible_clusters(actor))
    chosen = [cluster_by_name(actor, cluster)] if cluster else visible
    names = [one.name for one in visible]
    rates = rates_of(chosen)
    books = price_books(rates, now())
    prices = [
        (rate_name(rate, with_owner=names.count(rate.cluster.name) > 1), price)
        for rate in rates
        for price in books.get(rate.id, ())
    ]
    has_costs = Price.objects.filter(rate__in=[rate.id for rate in rates], own_costs__isnull=False).exists()
    return price_file_text(prices, comments=[NOT_IN_THE_FILE] if has_costs else [])


def rate_name(rate: Rate, *, with_owner: bool) -> RateName:
    """How a file names the rate."""
    owner = rate.cluster.owner.path if with_owner else ""
    return RateName(rate.cluster.name, rate.flavor, rate.capacity_type, owner)
