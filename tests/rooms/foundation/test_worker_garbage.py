import gc
import importlib
from typing import Any

import pytest
from celery import signals
from django.apps import apps

from config import celery
from placement.cycle import garbage


@pytest.fixture
def as_in_a_fork():
    """What a worker does before it forks; the tests' process was frozen too, and is again."""
    celery._spare_the_forks()
    yield
    gc.freeze()


def young_of_a_cycle(count):
    """How many of so many objects that a cycle makes the collector has still to walk."""
    with garbage.collector_paused():
        made = [[number] for number in range(count)]
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation=generation)}
    return sum(id(one) in young for one in made)


def test_a_fork_of_a_worker_leaves_frozen_what_was_imported_until_a_cycle_makes_many_objects(as_in_a_fork):
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    few = garbage.MANY // 2
    assert young_of_a_cycle(few) == few
    assert gc.get_freeze_count() == frozen
    assert young_of_a_cycle(5 * garbage.MANY) == 0
    assert gc.get_freeze_count() == 0


def test_a_cycle_collects_nothing_and_leaves_the_collector_as_it_was(as_in_a_fork):
    for was_enabled in (True, False):
        (gc.enable if was_enabled else gc.disable)()
        try:
            with garbage.collector_paused():
                assert not gc.isenabled()
            assert gc.isenabled() is was_enabled
        finally:
            gc.enable()


def test_a_worker_freezes_before_it_forks():
    after_setup: Any = signals.celeryd_after_setup  # the stubs leave out who listens
    assert celery._spare_the_forks in after_setup._live_receivers(None)


def test_the_web_process_freezes_what_it_imported_before_it_forks():
    gc.unfreeze()  # the tests froze it too
    importlib.reload(importlib.import_module("config.wsgi"))
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


def test_every_process_freezes_its_models_when_they_are_imported():
    gc.unfreeze()
    gc.disable()
    apps.get_app_config("foundation").ready()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
