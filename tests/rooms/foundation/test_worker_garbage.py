import gc
import importlib
from typing import Any

from celery import signals

from config import celery
from placement.cycle import garbage


def test_a_worker_freezes_what_it_imported_and_its_forks_let_a_cycle_pass_by_the_collector():
    celery._spare_the_forks()
    try:
        assert gc.get_freeze_count() > 10_000
    finally:
        celery._collect_as_usual()
    garbage._has_frozen_objects.cache_clear()  # a fork's first cycle asks
    gc.collect()  # what earlier tests left would go in between, and be missed below
    before = len(gc.get_objects(generation=2))
    with garbage.collector_paused():
        made = [[number] for number in range(50_000)]
    assert len(gc.get_objects(generation=2)) >= before + len(made), "the collector would walk what a cycle has made"


def test_a_worker_does_both_at_their_time():
    after_setup: Any = signals.celeryd_after_setup  # the stubs leave out who listens
    in_each_fork: Any = signals.worker_process_init
    assert celery._spare_the_forks in after_setup._live_receivers(None)
    assert celery._collect_as_usual in in_each_fork._live_receivers(None)


def test_the_web_process_freezes_what_it_imported_before_it_forks():
    gc.unfreeze()  # the tests froze it too
    importlib.reload(importlib.import_module("config.wsgi"))
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000
