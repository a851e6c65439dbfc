"""The judges of pulled images, of room that is kept for jobs, of moves for larger jobs, of copied data, and of converted charges object to what must not be, and to nothing else."""

from collections import defaultdict
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

JUNE, DAY = date(2026, 6, 1), date(2026, 6, 3)
ACME = "the organisation"


def world(rows, kind, **more):
    """A world of this kind whose books were kept, in which statements find these rows."""
    given: dict[str, Any] = {
        "are_books_kept": True,
        "faults": SimpleNamespace(rates={kind: 1.0}, happened=defaultdict(int)),
        "lost_commits": SimpleNamespace(spans=[]),
        "watch": SimpleNamespace(rows=lambda statement, *_: rows.get(statement, [])),
        "links": {"east": SimpleNamespace(is_destroyed=False)},
        "removed": [],
    }
    return SimpleNamespace(**(given | more))


def modules():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.accounts import exchanging  # noqa: PLC0415
    from devtools.simulation.requests import (  # noqa: PLC0415
        crowding,
        data_copies,
        elastic,
        image_pulls,
    )
    from devtools.simulation.worlds import consolidating, saving  # noqa: PLC0415

    own = {
        "consolidating": consolidating,
        "crowding": crowding,
        "data_copies": data_copies,
        "elastic": elastic,
        "saving": saving,
    }
    return SimpleNamespace(exchanging=exchanging, image_pulls=image_pulls, **own)


def charge(
    *, quote: str | None = "EUR", said: object = 5, is_open: bool = True, is_settled: bool = False
) -> tuple[Any, ...]:
    """An entry that charges ten dollars, and what stands for it in another currency."""
    amount = None if said is None else Decimal(str(said))
    return ("day/1", ACME, JUNE, is_open, DAY, "USD", Decimal(10), quote, amount, is_settled)


REFERENCES = [(1, None, "USD", Decimal("1.25"), date(2026, 5, 28)), (2, None, "CHF", Decimal("0.5"), date(2026, 6, 2))]
BY_HAND = [(ACME, "EUR", "USD", Decimal(4), date(2026, 6, 3), date(2026, 6, 4))]


@pytest.mark.parametrize(
    ("row", "references", "overrides", "is_right"),
    [
        (charge(said=8), REFERENCES, [], True),
        (charge(said=7), REFERENCES, [], False),
        (charge(said="2.5"), REFERENCES, BY_HAND, True),  # what was agreed counts before all others
        (charge(said=8), REFERENCES, BY_HAND, False),
        (
            charge(said=8),
            [*REFERENCES, (3, None, "USD", Decimal("1.25"), date(2026, 6, 4))],
            [],
            True,
        ),  # of a later day
        (charge(said=5), [*REFERENCES, (3, None, "USD", Decimal(2), date(2026, 6, 1))], [], True),
        (
            charge(said=8),
            [*REFERENCES, (3, ACME, "USD", Decimal(5), date(2026, 5, 28))],
            [],
            False,
        ),  # of the organisation
        (charge(quote=None, said=None), REFERENCES, [], False),
        (charge(quote=None, said=None, is_open=False), REFERENCES, [], True),
        (charge(quote=None, said=None), [], [], True),
        (charge(quote=None, said=None), [(1, None, "USD", Decimal(2), date(2026, 5, 27))], [], True),  # a week ago
    ],
)
def test_charges_are_converted_at_the_rates_that_count(row, references, overrides, is_right):
    module = modules().exchanging
    rows = {
        module.CONVERTED: [row],
        module.REFERENCES: references,
        module.OVERRIDES: overrides,
        module.CURRENCIES: [(JUNE, "EUR")],
    }
    found = module.promise_16_charges_are_converted_at_the_rates_that_count(world(rows, "exchanged"))
    assert (found == []) == is_right


def test_what_a_month_of_another_currency_settled_stays():
    module = modules().exchanging
    currencies = [(JUNE, "EUR"), (date(2026, 7, 1), "CHF")]
    rows = {
        module.CONVERTED: [charge(said=1, is_open=False, is_settled=True)],
        module.REFERENCES: REFERENCES,
        module.CURRENCIES: currencies,
    }
    assert module.promise_16_charges_are_converted_at_the_rates_that_count(world(rows, "exchanged")) == []
    rows[module.CURRENCIES] = currencies[:1]
    assert module.promise_16_charges_are_converted_at_the_rates_that_count(world(rows, "exchanged")) != []


LABELS = {"switchyard.dev/preparation": "prepull", "switchyard.dev/install": "us"}


@pytest.mark.parametrize(
    ("labels", "copies", "is_destroyed", "gone", "is_right"),
    [
        (LABELS, [], False, [], False),
        (LABELS, ["uid"], False, [], True),  # a stranger's copy
        (LABELS, [], True, [], True),
        (LABELS, [], False, [("east",)], True),
        ({"switchyard.dev/install": "us"}, [], False, [], True),  # of an attempt
        ({"switchyard.dev/preparation": "prepull"}, [], False, [], True),  # no longer ours
    ],
)
def test_pulls_leave_no_object_behind(labels, copies, is_destroyed, gone, is_right):
    module = modules().image_pulls
    job = SimpleNamespace(name="swy-a", uid="uid", labels=labels)
    cluster = SimpleNamespace(name="east", jobs={"key": job}, copies=set(copies), pulled=set())
    links = {"east": SimpleNamespace(is_destroyed=is_destroyed)}
    given = world({module.GONE: gone}, "prepulled", clusters={"east": cluster}, links=links)
    assert (module.pulls_of_images_leave_nothing_behind(given) == []) == is_right
    assert module.are_over(given) == is_right
    assert modules().data_copies.are_over(world({}, "staged", clusters={"east": cluster}, links=links)), "another kind"


def test_an_image_counts_as_pulled_only_where_it_was():
    module = modules().image_pulls
    cluster = SimpleNamespace(pulled={("east", "train:1", "east-0")})
    for node, is_right in (("east-0", True), ("east-1", False)):
        rows = {module.PULLED: [("east", "train:1", node)]}
        given = world(rows, "prepulled", clusters={"east": cluster})
        assert (module.an_image_counts_as_pulled_only_where_it_was(given) == []) == is_right


def test_room_that_is_kept_for_nothing_and_idle_that_is_charged_wrongly_are_named():
    module = modules().crowding
    assert module.what_is_kept_idle_is_charged_while_it_is_kept(world({}, "room_kept")) == []
    rows = {module.STANDING: [("job",)], module.CHARGED: [("idle", "room", "it goes on")]}
    assert len(module.what_is_kept_idle_is_charged_while_it_is_kept(world(rows, "room_kept"))) == 2


def test_what_plans_of_moves_leave_behind_is_named():
    module = modules().consolidating
    assert module.plans_of_moves_leave_nothing_behind(world({}, "consolidated")) == []
    assert module.are_over(world({}, "consolidated"))
    rows = {module.LIVE: [("job",)], module.PLACES: [("moved",)], module.LOST_BY_MOVES: [("moved", "failed")]}
    rows[module.NOT_PLACED] = [("job",)]
    assert len(module.plans_of_moves_leave_nothing_behind(world(rows, "consolidated"))) == 4
    assert not module.are_over(world(rows, "consolidated"))
    assert module.plans_of_moves_leave_nothing_behind(world(rows, "exchanged")) == [], "there, nothing moves for others"


def test_moves_that_must_not_be_are_named_with_their_cause():
    module = modules().consolidating
    rows = {module.UNLAWFUL: [("attempt", "job", "that is not larger")], module.OFTEN: [("job", 4)]}
    given = world(rows, "consolidated")
    assert module.jobs_move_only_for_a_larger_and_no_less_urgent_one(given) == [
        "attempt attempt was moved for job job: that is not larger"
    ]
    assert module.the_gateway_moves_a_job_three_times_a_day_at_most(given) == ["job job was moved 4 times within a day"]


def test_small_jobs_fill_the_nodes_and_each_larger_one_is_larger_and_comes_late():
    module = modules().consolidating
    for seed in range(20):
        jobs = module.submissions(seed, ())
        sizes = [one.body["pod_sets"][0]["count"] * one.body["pod_sets"][0]["gpu"]["count"] for one in jobs]
        assert set(sizes[: module.SMALL]) == {2}
        assert min(sizes[module.SMALL :]) > 2
        assert [one.is_late for one in jobs] == [number >= module.SMALL for number in range(len(jobs))]


def test_what_copies_of_data_leave_behind_is_named():
    module = modules().data_copies
    job = SimpleNamespace(name="swy-a", uid="uid", labels=LABELS | {"switchyard.dev/preparation": "stage-in"})
    cluster = SimpleNamespace(name="east", jobs={"key": job}, copies=set(), copied=set())
    given = world({module.LIVE: [("the copy a",)]}, "staged", clusters={"east": cluster})
    assert module.copies_of_data_leave_nothing_behind(given) == [
        "east still has the Job swy-a of a copy",
        "the copy a has not ended",
    ]
    assert not module.are_over(given)
    assert module.copies_of_data_leave_nothing_behind(world({}, "staged", clusters={})) == []


def test_a_replica_needs_a_copy_that_ended_well():
    module = modules().data_copies
    cluster = SimpleNamespace(copied={"uid"})
    for uid, is_right in (("uid", True), ("another", False), ("", False)):
        given = world({module.REPLICAS: [("plan", uid)]}, "staged", clusters={"east": cluster})
        assert (module.data_counts_as_copied_only_where_it_was(given) == []) == is_right


def test_a_job_that_starts_before_its_data_is_named_unless_that_cannot_be_known():
    module = modules().data_copies
    given = world({module.TOO_EARLY: [("attempt", "job")]}, "staged")
    assert len(module.no_job_starts_before_its_data(given)) == 1
    given.faults.happened["freeze"] = 1
    assert module.no_job_starts_before_its_data(given) == []


def test_a_run_of_another_size_or_hold_and_pods_beyond_it_are_objected_to():
    module = modules().elastic
    judge = module.a_run_has_a_size_of_its_job_and_holds_that
    assert judge(world({}, module.KIND)) == []
    rows = {
        module.SIZES: [("job-1", 5, "2 to 4")],
        module.HELD: [("a", "gpu", 4000, 2000)],
        module.BEYOND: [("swy-a", 2, 2)],
    }
    assert judge(world(rows, module.KIND)) == [
        "a run of job-1 has 5 pods, and may have 2 to 4",
        "attempt a holds 4000 of gpu for objects of 2000",
        "pod 2 of swy-a ran, which has 2 pods",
    ]


def test_a_job_that_grows_without_asking_or_ends_with_that_is_named():
    module = modules().elastic
    judge = module.jobs_grow_only_if_they_ask_for_it_and_go_on
    assert judge(world({}, module.KIND)) == []
    rows = {module.GROWN: [("a", "its job did not go on")]}
    assert judge(world(rows, module.KIND)) == ["attempt a was stopped to grow: its job did not go on"]


def test_each_move_for_a_price_is_judged():
    module = modules().saving
    judge = module.jobs_move_for_a_price_only_if_they_ask_for_it_and_go_on
    assert judge(world({}, module.KIND)) == []
    [found] = judge(world({module.SAVED: [("a1", "that saves nothing")]}, module.KIND))
    assert found == "attempt a1 was moved for its price: that saves nothing"


def test_some_jobs_of_a_world_are_elastic_and_their_specs_are_valid():
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.requests.clients import plan  # noqa: PLC0415 - as above
    from federation.engine.intake.spec import Rules  # noqa: PLC0415
    from federation.engine.intake.spec_reading import read_spec  # noqa: PLC0415

    found = [(seed, one) for seed in range(20) for one in equipped(plan(seed, (), ANY), seed)]
    found += [(seed, one) for seed in range(5) for one in modules().elastic.submissions(seed, ())]
    bodies = [{name: value for name, value in one.body.items() if name != "tenant"} for _, one in found]
    specs = [read_spec(body, Rules(allow_simulation=True)) for body in bodies]
    elastic = [one for one in specs if one.elastic is not None]
    assert 5 < len(elastic) < len(specs)
    assert any(one.elastic.min_count < one.pod_sets[0].count for one in elastic)
    assert 0 < sum(one.elastic.grow for one in elastic) < len(elastic)


def equipped(submissions, seed):
    modules().elastic.equip(seed, submissions)
    return submissions
