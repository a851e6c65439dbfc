"""Requests that cannot be fulfilled: each is refused for its own reason, and the simulation objects to other answers and to what is left."""

from types import SimpleNamespace
from typing import Any

import pytest

from foundation.problems import Conflict, Invalid, NotFound, Problem


def refusals() -> Any:
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.requests import refusals  # noqa: PLC0415

    return refusals


def requests() -> Any:
    from devtools.simulation.requests import refused_changes, refused_prices  # noqa: PLC0415

    return (*refused_changes.REQUESTS, *refused_prices.REQUESTS)


def world(**more: Any) -> Any:
    given: dict[str, Any] = {"machine": SimpleNamespace(unexpected=[]), "tell": lambda *_: None}
    return SimpleNamespace(**(given | more))


def asked(answer: Problem | None, code: str) -> list[str]:
    """What is objected to this answer to a request that is to be refused as `code`."""

    def act() -> None:
        if answer is not None:
            raise answer

    here = world()
    refusals()._ask(here, "asks", code, act)
    return here.machine.unexpected


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        (Invalid.field("nominal", "out_of_range", "too little"), True),
        (Invalid.field("nominal", "unknown_resource", "none"), False),
        (Conflict("not now", code="out_of_range"), True),
        (Conflict("not now", code="state_conflict"), False),
        (NotFound(), True),
        (None, False),
    ],
)
def test_an_answer_is_right_if_it_names_the_reason(answer, is_right):
    assert (asked(answer, "out_of_range") == []) == is_right


def test_what_is_left_of_a_refused_request_is_named():
    module = refusals()
    left = SimpleNamespace(rows=lambda statement: [("the entry", "quota.put")] if statement == module.LEFT else [])
    given = world(watch=left, faults=SimpleNamespace(rates={module.KIND: 1.0}))
    assert module.what_is_refused_changes_nothing(given) == [
        "the entry quota.put is left of a request that was refused"
    ]
    given.faults.rates.clear()
    assert module.what_is_refused_changes_nothing(given) == []


@pytest.mark.django_db
def test_each_request_is_refused_for_its_own_reason_in_a_new_world():
    """Where a row is missing that it is about, it is answered as not found."""
    from devtools.simulation.setting import stage  # noqa: PLC0415

    stage.set_up()
    module, reasons = refusals(), 0
    for told, code, act in requests():
        with pytest.raises(Problem) as refused:
            act()
        found = module.codes_of(refused.value)
        assert found & {code, "not_found"}, f"{told}: {found}"
        reasons += code in found
    assert reasons > 0.8 * len(requests())
    assert module.LEFT.count("SELECT") == len(set(module.LEFT.split("UNION ALL")))


@pytest.mark.django_db
def test_the_statement_of_what_is_left_finds_each_kind():
    from django.db import connection  # noqa: PLC0415

    from devtools.simulation.setting import stage  # noqa: PLC0415
    from quotas.operations import put_limit  # noqa: PLC0415

    stage.set_up()
    module = refusals()
    with connection.cursor() as cursor:
        cursor.execute(module.LEFT)
        assert cursor.fetchall() == []
        put_limit(module.PLATFORM, "acme", "gpu", nominal=5000)
        cursor.execute(module.LEFT)
        assert cursor.fetchall() == [("the entry", "quota.put")]
