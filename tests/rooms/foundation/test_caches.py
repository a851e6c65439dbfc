"""Caches of a process: equal sources cost nothing, another source is never answered with an old value."""

import threading
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from foundation import caches
from foundation.caches import Store, cached, cached_all, reset_all, reset_with


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    name: str = "east"
    size: int = 1


@pytest.fixture
def made():
    """How often each value was made."""
    return Counter()


@pytest.fixture
def one(made):
    @cached("id", most=3)
    def shown(row):
        made[row] += 1
        return f"{row.name}:{row.size}", object()

    return shown


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(caches, "monotonic", lambda: now[0])
    return now


def test_an_equal_source_gets_the_identical_value(one, made):
    first = one(Row(1))
    assert one(Row(1)) is first
    assert one(Row(2)) is not first
    assert made == {Row(1): 1, Row(2): 1}


@pytest.mark.parametrize("field", [field.name for field in fields(Row) if field.name != "id"])
def test_a_source_that_differs_in_any_field_is_made_again(one, made, field):
    one(Row(1))
    other: dict[str, Any] = {field: {"name": "west", "size": 2}[field]}
    changed = replace(Row(1), **other)
    assert one(changed)[0] == f"{changed.name}:{changed.size}"
    assert one(Row(1))[0] == "east:1"
    assert made == {Row(1): 2, changed: 1}


def test_a_refusal_is_not_kept():
    answers = iter([ValueError("no"), 7])

    @cached("id", most=3)
    def asked(_row):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ValueError, match="no"):
        asked(Row(1))
    assert [asked(Row(1)), asked(Row(1))] == [7, 7]


def test_a_value_of_none_is_kept_too(made):
    @cached("id", most=3)
    def nothing(row):
        made[row] += 1

    assert [nothing(Row(1)), nothing(Row(1))] == [None, None]
    assert made == {Row(1): 1}


def test_a_value_is_kept_for_so_many_seconds_after_it_was_asked_for(made, clock):
    @cached("id", most=3, seconds=2.0)
    def counted(row):
        made[row] += 1
        clock[0] += 0.5
        return made[row]

    assert counted(Row(1)) == 1
    clock[0] += 1.4
    assert counted(Row(1)) == 1
    clock[0] += 0.1
    assert counted(Row(1)) == 2


def test_of_too_many_values_the_oldest_go(one, made):
    for number in (1, 2, 3, 1, 4, 1):
        one(Row(number))
    assert made == {Row(1): 2, Row(2): 1, Row(3): 1, Row(4): 1}
    one(Row(3))
    one(Row(2))
    assert made == {Row(1): 2, Row(2): 2, Row(3): 1, Row(4): 1}


def test_several_attributes_and_attributes_of_attributes_name_a_value(made):
    @dataclass(frozen=True)
    class Asked:
        tenant: str
        row: Row

    @cached("tenant", "row.name", most=10)
    def answer(asked):
        made[asked] += 1
        return asked

    asked = [Asked("a", Row(1)), Asked("b", Row(1)), Asked("a", Row(1, "west"))]
    assert [answer(one) for one in asked * 2] == asked * 2
    assert set(made.values()) == {1}


def test_without_attributes_there_is_one_value(made):
    @cached(most=1)
    def found(path):
        made[path] += 1
        return path

    assert [found(("a",)), found(("a",)), found(("b",)), found(("a",))] == [("a",), ("a",), ("b",), ("a",)]
    assert made == {("a",): 2, ("b",): 1}


def test_only_what_is_new_or_changed_is_made_in_one_go_and_answers_keep_the_order():
    asked = []

    @cached_all("id")
    def sizes(rows):
        asked.append(list(rows))
        return [row.size for row in rows]

    assert sizes([Row(1, size=1), Row(2, size=2)]) == [1, 2]
    assert sizes([Row(3, size=3), Row(2, size=2), Row(1, size=9), Row(3, size=3)]) == [3, 2, 9, 3]
    assert asked == [[Row(1, size=1), Row(2, size=2)], [Row(3, size=3), Row(1, size=9)]]


def test_without_a_bound_only_the_last_calls_values_are_kept(made):
    @cached_all("id")
    def values(rows):
        made.update(rows)
        return [row.id for row in rows]

    values([Row(1), Row(2)])
    values([Row(2)])
    values([Row(1), Row(2)])
    assert made == {Row(1): 2, Row(2): 1}
    assert values([]) == []
    values([Row(2)])
    assert made[Row(2)] == 2


def test_with_a_bound_others_values_stay(made):
    @cached_all("id", most=10)
    def values(rows):
        made.update(rows)
        return [row.id for row in rows]

    values([Row(1), Row(2)])
    values([Row(2)])
    values([Row(1), Row(2)])
    assert made == {Row(1): 1, Row(2): 1}


def test_a_function_that_forgets_a_value_is_found_out():
    @cached_all("id")
    def too_few(rows):
        return [row.id for row in rows][1:]

    with pytest.raises(ValueError, match="zip"):
        too_few([Row(1), Row(2)])


def test_a_store_keeps_its_newest_values():
    store = Store(2)
    for number in (1, 2, 3):
        store.put(number, str(number))
    assert [store.get(number) for number in (1, 2, 3)] == [None, "2", "3"]


def test_one_reset_forgets_everything(one, made):
    store, calls = Store(2), []
    reset_with(lambda: calls.append("called"))
    store.put(1, "one")
    one(Row(1))
    reset_all()
    one(Row(1))
    assert (store.get(1), made[Row(1)], calls) == (None, 2, ["called"])


def test_many_threads_never_get_anothers_value():
    @cached("id", most=5)
    def doubled(row):
        return row.size * 2

    wrong = []

    def ask(seed):
        for number in range(3000):
            row = Row((number * seed) % 11, size=number % 7)
            if doubled(row) != row.size * 2:
                wrong.append(row)
            if number % 500 == 0:
                reset_all()

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
