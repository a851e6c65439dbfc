"""Every kind of fault is caused by something, and the smaller worlds do what their arguments say."""

import argparse

import pytest

from devtools.simulation.faults import CALLS, EVENTS, RATES, Faults
from devtools.simulation.size import Size, add_arguments, size_of

ELSEWHERE = {
    "watch_broken", "watch_skips_delete", "watch_repeats", "watch_goes_back", "watch_stalls", "commit_lost_done",
    "commit_lost_not_done", "statement_lost", "death", "bell_lost", "bell_tripled", "bell_late", "image_missing",
    "clocks_differ", "list_lacks", "name_taken", "uid_lies", "hook_changes", "hook_refuses", "hook_fails",
    "late", "service_name_taken",
}  # fmt: skip
"""Kinds that are asked for where they happen."""


def handlers():
    # Django must be set up before operations are imported, so this is not at the top.
    from devtools.simulation import administration, catalogue, mischief, strangers  # noqa: PLC0415

    ours = {name[1:] for name in vars(mischief.Mischief) if name.startswith("_") and not name.startswith("__")}
    return ours | set(administration.EVENTS) | set(catalogue.EVENTS) | set(strangers.EVENTS)


def test_each_event_has_one_who_causes_it():
    assert set(EVENTS) <= handlers()


def test_each_kind_of_fault_happens_somewhere():
    assert set(RATES) == {*CALLS, *EVENTS, *ELSEWHERE}


def test_only_the_wanted_faults_happen_and_at_their_highest_rates():
    assert Faults(1, only=("death", "slow")).rates == {"death": max(RATES["death"]), "slow": max(RATES["slow"])}
    assert Faults(1, without=("slow",), only=("death", "slow")).rates == {"death": max(RATES["death"])}


@pytest.mark.parametrize(
    "size",
    [Size(), Size(only=("death",), without=("slow", "lost"), jobs=(0, 2), spared=(3,), alone=True)],
)
def test_the_arguments_of_a_size_make_the_same_size(size):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert size_of(parser.parse_args(size.arguments().split())) == size
