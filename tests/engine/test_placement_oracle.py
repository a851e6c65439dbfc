"""How near the cycle comes to a constraint solver that sees everything at once; all it decides is checked as well."""

import random
from dataclasses import replace
from statistics import mean

import pytest

from placement.cycle.cycle import decide
from tests.laws import share_of

from .checker import check
from .fleets import A100, H100, cluster, flavor, job, limit, node, pods, snapshot
from .oracle import least_cents, let_in_order, most_gpus

pytestmark = pytest.mark.oracle

SINGLE_DECISIONS, QUEUES, QUEUES_IN_ORDER = map(share_of, (150, 60, 150))
WITHIN = 0.02
WITHIN_OF_THE_FORESEEING = 0.04
"""The queue's order is law for a cycle: no job is left out to fit in more of those behind it, as this solver may."""
SHAPES = ((1, 1), (1, 1), (1, 2), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (4, 1), (2, 8))
"""(pods, GPUs each)."""


def some_fleet(chance):
    """Two or three clusters of a few nodes, some of them busy, with two GPU models at prices of their own."""
    return [some_cluster(number, chance) for number in range(1, chance.choice((2, 3)) + 1)]


def some_cluster(number, chance):
    kinds = [flavor(model, price=f"{chance.randint(80, 400) / 100:.2f}") for model in chance.sample((A100, H100), 2)]
    nodes = []
    for n in range(chance.choice((2, 3, 4))):
        free = chance.choice((8, 8, 8, 6, 4, 2))
        domain = ("z", "b", f"r{n // 2}")
        nodes.append(node(f"n{n}", chance.choice(kinds), 8, free, domain=domain, free_cpu_millicores=16_000 * free))
    return cluster(number, nodes, kinds)


def some_job(chance, strategy, most_pod_sets=1):
    wanted = []
    for number in range(chance.randint(1, most_pod_sets)):
        count, gpus = chance.choice(SHAPES)
        models, cpu = chance.choice(((), (), (A100,), (H100,))), chance.choice((1000, 4000, 12_000))
        wanted.append(pods(count, gpus, models=models, cpu=cpu, name=f"set{number}"))
    return job(
        *wanted,
        level=chance.choice(("cluster", "rack", "node")),
        mode=chance.choice(("preferred", "required")),
        strategy=strategy,
    )


def asked(one):
    return sum(wanted.count * wanted.gpu.count for wanted in one.pod_sets)


def some_queue(chance, free):
    """Jobs that together ask for all GPUs that are free."""
    queue = []
    while True:
        one = some_job(chance, "pack")
        if asked(one) + sum(map(asked, queue)) > free:
            return queue
        queue.append(one)


def free_gpus(fleet):
    return sum(sum(one.free.values()) for each in fleet for one in each.nodes)


def test_each_job_in_its_turn_gets_a_place_if_there_is_one_and_hardly_pays_more_than_it_must():
    ratios, missed = [], 0
    for seed in range(SINGLE_DECISIONS):
        chance = random.Random(seed)
        one = snapshot(some_fleet(chance), [some_job(chance, "cheapest", most_pod_sets=3)])
        decisions = decide(one)
        check(one, decisions)
        best = least_cents(one)
        if not decisions.placements:
            missed += best >= 0
            continue
        assert best >= 0
        ratios.append(float(decisions.placements[0].hourly_cost * 100) / best)
    assert len(ratios) > SINGLE_DECISIONS / 3
    assert min(ratios) >= 1 - 1e-9
    assert mean(ratios) <= 1 + WITHIN, ratios
    assert missed <= SINGLE_DECISIONS * WITHIN, missed


def some_snapshot(seed):
    """A queue that asks for all GPUs of a fleet; now and then there is quota for three quarters of them."""
    chance = random.Random(seed)
    fleet = some_fleet(chance)
    limits = [limit("acme", "gpu", 1000 * free_gpus(fleet) * 3 // 4)] if seed % 4 == 0 else []
    return snapshot(fleet, some_queue(chance, free_gpus(fleet)), limits)


def test_a_queue_taken_in_its_order_gets_nearly_what_it_could_if_jobs_could_still_be_moved():
    shares = []
    for seed in range(QUEUES_IN_ORDER):
        one = some_snapshot(seed)
        placed = {placement.job_id for placement in decide(one).placements}
        ours, best = sum(asked(each) for each in one.queue if each.id in placed), sum(map(asked, let_in_order(one)))
        shares.append(min(1.0, ours / best) if best else 1.0)
    assert mean(shares) >= 1 - WITHIN, shares


def test_a_whole_queue_gets_nearly_as_many_gpus_as_if_all_of_it_had_been_foreseen():
    shares = []
    for seed in range(QUEUES):
        one = some_snapshot(seed)
        decisions = decide(one)
        check(one, decisions)
        placed = {placement.job_id for placement in decisions.placements}
        ours, best = sum(asked(each) for each in one.queue if each.id in placed), most_gpus(one)
        assert ours <= best
        assert least_cents(replace(one, queue=tuple(each for each in one.queue if each.id in placed))) >= 0
        shares.append(ours / best if best else 1.0)
    assert mean(shares) >= 1 - WITHIN_OF_THE_FORESEEING, shares
