"""Prices of clusters that change places while jobs run which may move to the cheaper one."""

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from billing.operations import create_price
from billing.operations.prices import NewPrice
from clusters.models import Flavor
from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS
from devtools.simulation.judges.promises import judging
from devtools.simulation.requests.clients import Submission
from devtools.simulation.requests.crowding import make_ample
from devtools.simulation.requests.moves import LONG_DEADLINE
from devtools.simulation.setting.stage import CLUSTERS, TEAMS
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from .world import World

KIND = "saved"
SHARE = 0.7
"""The share of the jobs that may move for their price, in a world of this kind."""
OWN = 0.5
"""The share of these worlds with jobs that run long enough to move."""
DEAR, CHEAP = Decimal(100), Decimal(1)
"""So far apart that a minute of the difference is worth a move."""
ESTIMATE = 5000
CHANGES = ((5, 20), (120, 200))
"""When prices change, in seconds."""


def begin(world: "World") -> None:
    """Quota suffices, and one cluster becomes dear; later another one."""
    if KIND not in world.faults.rates:
        return
    make_ample(world)
    chance = random.Random(f"{world.seed}/prices")
    order = chance.sample(CLUSTERS, len(CLUSTERS))
    for turn, span in enumerate(CHANGES):
        for number, name in enumerate(order):
            price = DEAR if number == turn % len(order) else CHEAP
            world.scheduler.after(chance.uniform(*span), lambda name=name, price=price: _price(world, name, price))  # type: ignore[misc]


def _price(world: "World", name: str, price: Decimal) -> None:
    if world.faults.is_healed:
        return

    def put() -> None:
        for flavor in Flavor.objects.filter(cluster__name=name, cluster__removed_at=None):
            create_price(SYSTEM, NewPrice(name, flavor.name, price))

    world.wish(f"prices {name} at {price}", put, "price.create")


def has_own_jobs(seed: int) -> bool:
    """Whether a world of this kind has jobs that run long enough to move."""
    return random.Random(f"{seed}/saves").random() < OWN


def submissions(seed: int, wanted: tuple[int, ...]) -> list[Submission]:
    """Jobs that run for long and may move; only those with these numbers if there are any."""
    chance, found = random.Random(f"{seed}/thrifty"), list[Submission]()
    for number in range(chance.choice((2, 3, 4))):
        pod = {
            "name": "main", "count": chance.choice((1, 1, 2)), "image": "registry.example/train:1", "cpu": "1", "memory": "1Gi",
            "gpu": {"count": chance.choice((1, 2))},
        }  # fmt: skip
        body: dict[str, Any] = {
            "tenant": TEAMS[chance.randrange(2)], "name": f"job-{number}", "pod_sets": [pod],
            "strategy": chance.choice(("balanced", "cheapest", "spread")),
            "labels": {RUN_SECONDS: "250", EXIT_CODE: chance.choice(("0", "0", "3"))},
        }  # fmt: skip
        cancel = chance.uniform(60, 200) if chance.random() < 0.2 else None
        one = Submission(f"key-{number}", chance.choice(("ada", "ben")), body, cancel)
        if chance.random() < 0.2:
            one.suspend_after, one.suspended_for = chance.uniform(20, 150), chance.uniform(0, 40)
        _make_thrifty(one, 250, has_deadline=chance.random() < 0.3)
        if not wanted or number in wanted:
            found.append(one)
    return found


def _make_thrifty(one: Submission, runs: int, *, has_deadline: bool) -> None:
    one.body |= {"moves": "when_cheaper", "checkpoint_seconds": 20, "estimated_seconds": ESTIMATE}
    one.body |= {"deadline_seconds": LONG_DEADLINE} | ({"finish_within_seconds": ESTIMATE} if has_deadline else {})
    one.body["labels"] |= {RUN_SECONDS: str(runs)}


def equip(seed: int, found: list[Submission]) -> None:
    """Lets some jobs move for their price, and gives some a deadline."""
    chance = random.Random(f"{seed}/saving")
    for one in found:
        is_thrifty, has_deadline, runs = chance.random() < SHARE, chance.random() < 0.3, chance.choice((90, 150, 250))
        if is_thrifty:
            _make_thrifty(one, runs, has_deadline=has_deadline)


@judging
def jobs_move_for_a_price_only_if_they_ask_for_it_and_go_on(world: "World") -> list[str]:
    """Each job that was moved for its price asks for that, was moved to where it cost less, by what the price book said then, and has not
    ended with the run that was stopped.
    """
    return [f"attempt {attempt} was moved for its price: {why}" for attempt, why in world.watch.rows(SAVED)]


SAVED = """
SELECT attempt_id::text, why FROM (
    SELECT move.attempt_id,
           CASE WHEN job.spec ->> 'moves' IS DISTINCT FROM 'when_cheaper' THEN 'its job does not ask for it'
                WHEN move.saving <= move.price_of_move OR move.price_to >= move.price_from THEN 'that saves nothing'
                WHEN (SELECT max(price.unit_price) FROM billing_price AS price JOIN billing_rate AS rate ON rate.id = price.rate_id
                       WHERE rate.cluster_id = attempt.cluster_id AND price.valid && just.now)
                     <= (SELECT min(price.unit_price) FROM billing_price AS price JOIN billing_rate AS rate ON rate.id = price.rate_id
                       WHERE rate.cluster_id = move.expected_id AND price.valid && just.now)
                THEN 'its old place was not dearer'
                WHEN attempt.end_reason = 'migrated' AND job.state IN ('failed', 'succeeded') AND next.number IS NULL
                THEN 'its job did not go on' END AS why
      FROM federation_move AS move
      JOIN federation_job AS job ON job.id = move.job_id
      JOIN federation_attempt AS attempt ON attempt.id = move.attempt_id
      LEFT JOIN federation_attempt AS next ON next.job_id = job.id AND next.number = attempt.number + 1
     CROSS JOIN LATERAL (
        SELECT tstzrange(move.created_at - interval '1 minute', move.created_at, '[]') AS now) AS just
     WHERE move.cause = 'price') AS saved WHERE why IS NOT NULL ORDER BY 1
"""
