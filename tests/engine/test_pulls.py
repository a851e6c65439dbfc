"""Pulls in placement: what is known of a job's images decides between equals, and only between them."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from clusters.engine.pulls import USUAL_SECONDS, class_of
from placement.answers.quotes import Quoter, quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text, without_image_names
from placement.cycle.cycle import decide
from placement.cycle.timeline import start_text
from placement.ranking.pulls import pull_text
from placement.values.decisions import Pull, Start
from placement.values.images import KnownImage, image_key
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    JobRequest,
    PodSetRequest,
    Snapshot,
    StrategyWeights,
    TenantPolicy,
)
from placement.values.nodes import NodeResources, fleet_node

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BIG = class_of(8000)
IMAGE = "registry:5000/t:1"
EAST, WEST, SOUTH = UUID(int=1), UUID(int=2), UUID(int=3)


def cluster(id_: UUID, *, nodes: int = 4, price: str | None = "1", **changes) -> FleetCluster:
    flavor = FleetFlavor("cpu", "", "", 0, "whole", "on-demand", unit_price=None if price is None else Decimal(price))
    each = [
        fleet_node(f"n{n}", NodeResources(110, 64_000, 256_000, {"cpu": 0}), domain=("", "", "")) for n in range(nodes)
    ]
    return FleetCluster(id_, f"c{id_.int}", "", "r", "ready", {"cpu": flavor}, tuple(each), **changes)


def job(
    number: int = 1, *images: str, tenant: str = "acme/team", count: int = 1, strategy: str = "cheapest", **changes
):
    names = images or (IMAGE,)
    sets = tuple(PodSetRequest(f"p{n}", count, 1000, 1000) for n in range(len(names)))
    shape = f"shape-{len(names)}-{count}-{strategy}"
    return JobRequest(UUID(int=100 + number), tenant, shape, sets, strategy=strategy, images=names, **changes)


def known(nodes: dict[UUID, int], image: str = IMAGE, organisation: str = "acme", size_class: int = BIG):
    return {image_key(organisation, image): KnownImage(size_class, {id_: {"cpu": n} for id_, n in nodes.items()})}


WHEREVER_IT_IS_FREE = (TenantPolicy("acme", weights=(StrategyWeights("cheapest", free=0.0),)),)
"""How full clusters are makes no difference: they remain equal."""


def snapshot(queue, images, clusters=(), **changes) -> Snapshot:
    return Snapshot(NOW, tuple(clusters or (cluster(EAST), cluster(WEST))), tuple(queue), images=images, **changes)


def placed(found: Snapshot) -> list[str]:
    return [one.cluster for one in decide(found).placements]


def test_of_equal_clusters_the_one_with_the_image_is_chosen():
    assert placed(snapshot([job()], {})) == ["c1"]
    assert placed(snapshot([job()], known({WEST: 4}))) == ["c2"]
    assert placed(snapshot([job()], known({WEST: 3, EAST: 1}))) == ["c2"]
    assert placed(snapshot([job()], known({WEST: 1, EAST: 4}))) == ["c1"]


@pytest.mark.parametrize("price", ["1", None])
@pytest.mark.parametrize("strategy", ["cheapest", "balanced", "spread", "soonest"])
def test_it_decides_under_every_strategy_with_prices_and_without(price, strategy):
    fleet = (cluster(EAST, price=price), cluster(WEST, price=price))
    found = snapshot([job(strategy=strategy)], known({WEST: 4}), fleet)
    assert placed(found) == ["c2"]


def test_the_cluster_that_pulls_faster_is_chosen():
    slow, fast = tuple(2 * one for one in USUAL_SECONDS), tuple(one // 2 for one in USUAL_SECONDS)
    third = cluster(SOUTH, price="9")
    fleet = (cluster(EAST), cluster(WEST), third)
    assert placed(snapshot([job()], known({SOUTH: 4}), fleet, pull_seconds={EAST: slow, WEST: fast})) == ["c2"]
    assert placed(snapshot([job()], known({SOUTH: 4}), fleet, pull_seconds={EAST: fast, WEST: slow})) == ["c1"]


@pytest.mark.parametrize(
    "east", [cluster(EAST, price="0.9999"), cluster(EAST, price="1"), cluster(EAST, price="1", minutes_unseen=0)]
)
def test_attack_a_lie_about_images_never_outweighs_price_or_freshness(east):
    west = cluster(WEST, price="1", minutes_unseen=0 if east.flavors["cpu"].unit_price != 1 else 1)
    assert placed(snapshot([job()], known({WEST: 10**9}), (east, west), pull_seconds={WEST: (0,) * 6})) == ["c1"]


def test_differences_of_a_few_seconds_decide_nothing():
    assert placed(snapshot([job()], known({WEST: 4}, size_class=0))) == ["c1"]
    assert placed(snapshot([job()], known({WEST: 4}, size_class=2))) == ["c2"]


def test_jobs_of_one_shape_with_different_images_each_go_to_their_own():
    images = known({WEST: 4}) | known({EAST: 4}, "other:1")
    queue = [job(1), job(2, "other:1"), job(3), job(4, "other:1")]
    assert placed(snapshot(queue, images, policies=WHEREVER_IT_IS_FREE)) == ["c2", "c1", "c2", "c1"]


def test_another_organisations_images_are_not_known():
    found = snapshot([job(tenant="rival/team")], known({WEST: 4}))
    assert placed(found) == ["c1"]
    assert decide(found).placements[0].pull is None
    assert placed(snapshot([job(tenant="acme")], known({WEST: 4}))) == ["c2"]


def test_of_several_pod_sets_the_slowest_pull_counts():
    images = known({EAST: 4}, "small:1", size_class=2) | known({WEST: 4}, "large:1")
    queue = [job(1, "small:1", "large:1", "unknown:1")]
    (found,) = decide(snapshot(queue, images)).placements
    assert (found.cluster, found.pull) == ("c2", Pull("small:1", 0, 4, USUAL_SECONDS[2]))


@pytest.mark.parametrize(
    ("nodes", "pull", "text"),
    [
        (0, Pull(IMAGE, 0, 4, 300), "no node there reports its image, and pulling it takes about 5 min"),
        (3, Pull(IMAGE, 3, 4, 300), "its image is on 3 of 4 nodes there, and pulling it takes about 5 min"),
        (4, Pull(IMAGE, 4, 4, 0), "its image is on all 4 nodes there"),
        (10**12, Pull(IMAGE, 4, 4, 0), "its image is on all 4 nodes there"),
        (-7, Pull(IMAGE, 0, 4, 300), "no node there reports its image, and pulling it takes about 5 min"),
    ],
)
def test_an_offer_shows_where_the_image_is_and_starts_later_by_its_pull(nodes, pull, text):
    found = quote(job(), snapshot([], known({EAST: nodes}), [cluster(EAST)]))
    (offer,) = found.offers
    assert (offer.placement.pull, pull_text(pull)) == (pull, text)
    assert offer.expected_start == NOW + timedelta(seconds=pull.seconds)


def test_without_known_images_nothing_is_said_and_nothing_is_later():
    (first, *_) = quote(job(), snapshot([], {})).offers
    assert (first.placement.pull, first.expected_start) == (None, NOW)
    assert pull_text(Pull(IMAGE, 1, 1, 0)) == "its image is on the node there"


def test_a_quote_knows_the_images_of_its_own_job_beside_those_of_the_queue():
    quoter = Quoter(snapshot([job(1, "other:1")], known({EAST: 4}, "other:1"), policies=WHEREVER_IT_IS_FREE))
    (first, *_) = quoter.quote(job(2), images=known({WEST: 4})).offers
    assert first.placement.cluster == "c2"
    (first, *_) = quoter.quote(job(3, "other:1"), images=known({WEST: 4}, "other:1")).offers
    assert first.placement.cluster == "c1", "the state of the snapshot counts"


@pytest.mark.parametrize("seed", range(20))
def test_the_first_offer_is_what_the_cycle_decides(seed):
    chance = random.Random(seed)
    fleet = [
        cluster(UUID(int=n), nodes=chance.randint(1, 3), price=chance.choice(["1", "1", "2", None]))
        for n in (1, 2, 3, 4)
    ]
    images = {}
    for name in "abc":
        images |= known({one.id: chance.randint(0, 3) for one in fleet if chance.random() < 0.7}, name)
    pulls = {one.id: tuple(chance.randint(0, 900) for _ in USUAL_SECONDS) for one in fleet if chance.random() < 0.5}
    queue = [
        job(
            n,
            *chance.choices("abcd", k=chance.randint(1, 2)),
            count=chance.randint(1, 60),
            strategy=chance.choice(["cheapest", "balanced"]),
        )
        for n in range(8)
    ]
    found = snapshot(queue, images, fleet, pull_seconds=pulls)
    decided = {one.job_id: one for one in decide(found).placements}
    for position, one in enumerate(queue):
        before = replace(found, queue=tuple(queue[:position]))
        told = quote(one, before)
        assert (told.offers[0].placement if told.offers else None) == decided.get(one.id)


@pytest.mark.parametrize("seed", range(10))
def test_images_change_only_choices_between_equals(seed):
    """Whatever is known of images, the first job gets a place whose sum is the lowest without them."""
    chance = random.Random(seed)
    fleet = [cluster(UUID(int=n), price=chance.choice(["1", "2"])) for n in (1, 2, 3, 4)]
    images = known({one.id: chance.randint(0, 4) for one in fleet})
    (one,) = decide(snapshot([job()], images, fleet)).placements
    assert one.unit_price == min(c.flavors["cpu"].unit_price for c in fleet)


def test_a_snapshot_with_images_is_recorded_and_decides_the_same_again():
    found = snapshot([job(1), job(2, "other:1")], known({WEST: 4}), pull_seconds={EAST: USUAL_SECONDS})
    again = snapshot_of(json.loads(snapshot_text(found)))
    assert again == found
    assert decisions_text(decide(again)) == decisions_text(decide(found))


def test_a_waiting_jobs_start_names_the_pull():
    start = Start(NOW + timedelta(hours=1), "c1", 1, 1, pull_seconds=300)
    assert start_text(start, NOW).endswith("by then; pulling its image then takes about 5 min")
    assert start_text(replace(start, pull_seconds=0), NOW).endswith("by then")


def test_a_recorded_snapshot_names_no_image_and_decides_the_same():
    fleet = snapshot([job(1), job(2, "small:1", IMAGE)], known({WEST: 4}))
    nameless = without_image_names(fleet)
    text = snapshot_text(nameless).decode()
    assert IMAGE not in text
    assert "small:1" not in text
    assert [one.cluster_id for one in decide(nameless).placements] == [
        one.cluster_id for one in decide(fleet).placements
    ]
    assert [one.pull and one.pull.nodes for one in decide(nameless).placements] == [
        one.pull and one.pull.nodes for one in decide(fleet).placements
    ]
