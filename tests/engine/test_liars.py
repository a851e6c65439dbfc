"""To state a minute for everything gains nothing at the expense of those who state what their jobs take."""

import random
from dataclasses import replace
from statistics import mean, quantiles

import pytest

from simulator.gateways import EngineGateway
from simulator.simulation import replay
from simulator.values import HOUR, Conditions

from .test_replay import job, plan

TENANTS = 20
LIARS = {f"org/t{number}" for number in range(3)}
"""15 % of the tenants."""


def trace(seed):
    """Jobs of 20 tenants, of one or two GPUs and minutes to hours, whose names tell nothing."""
    draw = random.Random(seed)
    jobs = []
    for number in range(160):
        seconds = round(draw.lognormvariate(6.3, 1.0))
        gpus = draw.choice([1, 1, 2])
        jobs.append(
            job(
                round(draw.uniform(0, 3 * HOUR)),
                float(seconds),
                gpus=gpus,
                tenant=f"org/t{number % TENANTS}",
                name=f"j{number}",
                estimated_seconds=seconds,
            )
        )
    return sorted(jobs, key=lambda one: one.submitted)


def waits(jobs):
    figures = replay([plan(nodes=1)], jobs, EngineGateway(), Conditions())
    honest = [line.wait for line in figures.lines if line.job.tenant not in LIARS]
    liars = [line.wait for line in figures.lines if line.job.tenant in LIARS]
    return honest, liars


@pytest.mark.law
def test_liars_gain_nothing_and_raise_the_waits_of_others_by_less_than_two_percent():
    told, lied = ([], []), ([], [])
    for seed in range(2):
        honest = trace(seed)
        lies = [replace(one, estimated_seconds=60) if one.tenant in LIARS else one for one in honest]
        for found, jobs in ((told, honest), (lied, lies)):
            for group, own in zip(found, waits(jobs), strict=True):
                group.extend(own)
    assert mean(lied[0]) < 1.02 * mean(told[0])
    assert quantiles(lied[0], n=20)[-1] < 1.02 * quantiles(told[0], n=20)[-1]
    assert mean(lied[1]) >= mean(told[1])
