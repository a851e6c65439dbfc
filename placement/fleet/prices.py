"""The hourly cost of a pod on a flavor: GPUs, cores and memory, each if the price book has a price for it."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from placement.values.model import FleetFlavor, PodSetRequest

from .amounts import MILLI, portion_of

MILLICORES_PER_CORE = 1000
MIB_PER_GIB = 1024
MICROSECOND = timedelta(microseconds=1)
MICROSECONDS_AN_HOUR = 3_600_000_000


class Rates(NamedTuple):
    """The hourly prices of a unit, a core and a GiB."""

    unit: Decimal
    cpu: Decimal
    memory: Decimal


def rates_of(flavor: FleetFlavor, *, with_gpu: bool) -> Rates | None:
    """The prices on the flavor of pods with a GPU, or of pods without; None without a price."""
    zero = Decimal(0)
    if with_gpu or not flavor.gpu_model:
        if flavor.unit_price is None:
            return None
        unit, cpu = (flavor.unit_price, flavor.cpu_price or zero) if with_gpu else (zero, flavor.unit_price)
        return Rates(unit, cpu, flavor.memory_price or zero)
    if flavor.guest_cpu_price is None and flavor.guest_memory_price is None:
        return None
    return Rates(zero, flavor.guest_cpu_price or zero, flavor.guest_memory_price or zero)


def hourly_cost(pod_sets: tuple[PodSetRequest, ...], flavors: tuple[FleetFlavor, ...]) -> Decimal | None:
    """The hourly cost of all pods at the flavors' prices, or None if one of them has no price."""
    cost = Decimal(0)
    for pod_set, flavor in zip(pod_sets, flavors, strict=True):
        rates = rates_of(flavor, with_gpu=pod_set.gpu is not None)
        if rates is None:
            return None
        cost += cost_of(pod_set, rates, *(portion_of(pod_set.gpu, flavor) or (0, 0)))
    return cost


def cost_of(pod_set: PodSetRequest, rates: Rates, units: int, part_milli: int) -> Decimal:
    """The hourly cost of all pods of a set; each pod uses `units`, and `part_milli` thousandths of one more unit."""
    a_pod = rates.unit * units
    if part_milli:
        a_pod += rates.unit * part_milli / MILLI
    if rates.cpu:
        a_pod += rates.cpu * pod_set.cpu_millicores / MILLICORES_PER_CORE
    if rates.memory:
        a_pod += rates.memory * pod_set.memory_mib / MIB_PER_GIB
    return a_pod * pod_set.count


def cost_over(
    pod_sets: tuple[PodSetRequest, ...], flavors: tuple[FleetFlavor, ...], start: datetime, seconds: int
) -> Decimal | None:
    """The cost of all pods over a number of seconds from `start` on, each part at the price then; None while a price is
    missing.
    """
    until = start + timedelta(seconds=seconds)
    changes = {change.at for flavor in flavors for change in flavor.price_changes if start < change.at < until}
    cost = Decimal(0)
    for begins, ends in pairwise(sorted({start, until, *changes})):
        an_hour = hourly_cost(pod_sets, tuple(flavor_at(flavor, begins) for flavor in flavors))
        if an_hour is None:
            return None
        cost += an_hour * ((ends - begins) // MICROSECOND)
    return cost / MICROSECONDS_AN_HOUR


def flavor_at(flavor: FleetFlavor, at: datetime) -> FleetFlavor:
    """The flavor with the prices that are in force at a time, as far as they are announced."""
    for change in reversed(flavor.price_changes):
        if change.at <= at:
            return replace(
                flavor,
                unit_price=change.unit_price,
                cpu_price=change.cpu_price,
                memory_price=change.memory_price,
                guest_cpu_price=change.guest_cpu_price,
                guest_memory_price=change.guest_memory_price,
            )
    return flavor
