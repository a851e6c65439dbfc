"""Images on nodes: their names, their compact form, the counts by flavor, and the pulls that are learned from."""

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from clusters.engine.image_counts import ImageCount, counts
from clusters.engine.images import (
    ENTRY,
    LARGEST_MIB,
    MIB,
    MOST_IMAGES,
    MOST_NAMES,
    NO_IMAGES,
    key_of,
    normal_name,
    packed,
    size_on,
)
from clusters.engine.pulls import (
    FEWEST_PULLS,
    LONGEST_SECONDS,
    MOST_OPEN,
    MOST_ROUNDS,
    USUAL_SECONDS,
    ImageInventory,
    PullSample,
    class_of,
    expected_seconds,
)

DIGEST = "sha256:" + "ab" * 32
PYTHON = "docker.io/library/python:3.11"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("python:3.11", PYTHON),
        ("library/python:3.11", PYTHON),
        ("docker.io/python:3.11", PYTHON),
        ("index.docker.io/library/python:3.11", PYTHON),
        ("Docker.IO/library/python:3.11", PYTHON),
        ("python", "docker.io/library/python:latest"),
        ("pytorch/pytorch:2", "docker.io/pytorch/pytorch:2"),
        ("localhost/own", "localhost/own:latest"),
        ("registry:5000/team/train:v1", "registry:5000/team/train:v1"),
        ("registry:5000/train", "registry:5000/train:latest"),
        ("registry.example/train", "registry.example/train:latest"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        (f"python:3.11@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        (f"registry:5000/t@{DIGEST}", f"registry:5000/t@{DIGEST}"),
    ],
)
def test_an_image_has_one_normal_name_however_it_is_written(written, normal):
    assert normal_name(written) == normal
    assert normal_name(normal) == normal
    assert key_of(written) == key_of(normal)


def test_all_names_of_an_image_have_its_size_rounded_up():
    node = packed([(["python:3.11", f"python@{DIGEST}"], 100 * MIB + 1)])
    assert size_on(node, key_of(PYTHON)) == 101
    assert size_on(node, key_of(f"docker.io/library/python@{DIGEST}")) == 101
    assert size_on(node, key_of("python:3.12")) is None
    assert size_on(NO_IMAGES, key_of(PYTHON)) is None


def test_names_that_no_job_can_have_do_not_count():
    assert packed([(["<none>@<none>", "<none>:<none>", DIGEST, "x" * 601], 5), ([], 7)]) == NO_IMAGES


def test_a_name_listed_twice_counts_once_with_the_first_size():
    node = packed([(["a.example/x"], 3 * MIB), (["a.example/x:latest"], 9 * MIB)])
    assert (len(node), size_on(node, key_of("a.example/x"))) == (12, 3)


def test_bytes_of_two_entries_are_no_key():
    key = key_of("a.example/x")
    half = key.to_bytes(8, "little")
    across = ENTRY.pack(int.from_bytes(b"\1\1\1\1" + half[:4], "little"), int.from_bytes(half[4:], "little"))
    shifted = across + ENTRY.pack(7, 1)
    assert half in shifted
    assert size_on(shifted, key) is None
    assert size_on(shifted + ENTRY.pack(key, 5) + ENTRY.pack(9, 2), key) == 5


@pytest.mark.parametrize(("size", "kept"), [(-5, 0), (0, 0), (1, 1), (10**30, LARGEST_MIB)])
def test_absurd_sizes_are_bounded(size, kept):
    assert size_on(packed([(["a.example/x"], size)]), key_of("a.example/x")) == kept


def test_attack_a_node_that_lists_a_million_images_costs_no_more_than_a_large_one():
    endless = (([f"a.example/x:{n}-{k}" for k in range(100)], MIB) for n in range(1_000_000))
    node = packed(endless)
    assert len(node) == 12 * MOST_IMAGES * MOST_NAMES
    assert next(endless)[0][0] == f"a.example/x:{MOST_IMAGES + 1}-0"


def test_images_are_counted_by_the_flavors_of_their_nodes():
    both, first = packed([(["a"], MIB), (["b"], 2 * MIB)]), packed([(["a:latest"], 3 * MIB)])
    by_node = {"n1": both, "n2": first, "n3": NO_IMAGES, "stranger": both}
    flavors = {"n1": ("h100", "mig"), "n2": ("h100",), "n3": ("cpu",)}
    names = [normal_name(one) for one in ("a", "b", "c")]
    assert counts(by_node, names, flavors) == {
        names[0]: ImageCount(1, 2, {"h100": 2, "mig": 1}),
        names[1]: ImageCount(2, 1, {"h100": 1, "mig": 1}),
    }
    assert counts(by_node, [], flavors) == counts({}, names, flavors) == counts(by_node, names, {}) == {}
    assert counts({"n3": NO_IMAGES}, names, flavors) == {}


def test_one_node_that_lies_about_a_size_does_not_set_it():
    by_node = {f"n{n}": packed([(["a"], size * MIB)]) for n, size in enumerate((100, 101, 10**6))}
    (found,) = counts(by_node, [normal_name("a")], dict.fromkeys(by_node, ("f",))).values()
    assert found == ImageCount(101, 3, {"f": 3})


@pytest.mark.parametrize("seed", range(20))
def test_counts_equal_those_made_one_by_one(seed):
    chance = random.Random(seed)
    names = [normal_name(f"i{n}") for n in chance.sample(range(12), 8)]
    has = {f"n{n}": chance.sample(range(12), chance.randint(0, 6)) for n in range(15)}
    by_node = {node: packed([([f"i{n}"], MIB) for n in own]) for node, own in has.items()}
    flavors = {node: tuple(chance.sample(("f", "g", "h"), chance.randint(1, 2))) for node in has}
    expected = {}
    for name in names:
        on = [node for node, own in has.items() if name in {normal_name(f"i{n}") for n in own}]
        if on:
            expected[name] = ImageCount(1, len(on), dict(sorted(Counter(f for n in on for f in flavors[n]).items())))
    assert counts(by_node, names, flavors) == expected


@dataclass
class Node:
    name: str
    images: bytes = NO_IMAGES


@dataclass
class Pod:
    uid: str = "p"
    node: str = "n"
    image: str = "big"
    pull_seconds: int | None = None


OTHER = packed([(["other"], MIB)])
BIG = packed([(["other"], MIB), (["big"], 3000 * MIB)])


def watching() -> ImageInventory:
    inventory = ImageInventory()
    inventory.see_nodes("listed", [Node("n", OTHER)])
    return inventory


def test_a_pull_is_learned_once_its_node_lists_the_image_with_its_size():
    inventory = watching()
    inventory.see_pods("changed", [Pod()])
    inventory.see_pods("changed", [Pod(pull_seconds=40)])
    assert inventory.take_pulls() == []
    inventory.see_nodes("changed", [Node("n", BIG)])
    inventory.see_pods("changed", [Pod(pull_seconds=40)])
    assert inventory.take_pulls() == [PullSample(class_of(3000), 40)]
    assert inventory.take_pulls() == []


def test_a_node_whose_images_change_is_recorded_once():
    inventory = watching()
    assert (inventory.has_changed, inventory.snapshot()) == (True, {"n": OTHER})
    inventory.see_nodes("changed", [Node("n", OTHER)])
    assert not inventory.has_changed
    inventory.see_nodes("changed", [Node("n", BIG)])
    assert (inventory.has_changed, inventory.snapshot()) == (True, {"n": BIG})
    inventory.see_nodes("deleted", [Node("n", BIG)])
    assert (inventory.has_changed, inventory.snapshot(), inventory.has_changed) == (True, {}, False)


@pytest.mark.parametrize(
    "events",
    [
        [("changed", Pod(pull_seconds=40))],
        [("changed", Pod(image="other")), ("changed", Pod(image="other", pull_seconds=40))],
        [("changed", Pod(image="")), ("changed", Pod(image="", pull_seconds=40))],
        [("changed", Pod(node="")), ("changed", Pod(pull_seconds=40))],
        [("changed", Pod(node="silent")), ("changed", Pod(node="silent", pull_seconds=40))],
        [("changed", Pod()), ("changed", Pod(node="m", pull_seconds=40))],
        [("changed", Pod()), ("deleted", Pod()), ("changed", Pod(pull_seconds=40))],
        [("changed", Pod()), ("listed", None), ("changed", Pod(pull_seconds=40))],
    ],
)
def test_without_evidence_of_a_pull_nothing_is_learned(events):
    inventory = watching()
    for kind, pod in events:
        inventory.see_pods(kind, [pod] if pod else [])
    inventory.see_nodes("listed", [Node("n", BIG), Node("m", BIG), Node("silent", BIG)])
    assert inventory.take_pulls() == []


def test_a_pull_whose_size_never_appears_is_forgotten():
    inventory = watching()
    inventory.see_pods("changed", [Pod()])
    inventory.see_pods("changed", [Pod(pull_seconds=40)])
    for _ in range(MOST_ROUNDS + 1):
        assert inventory.take_pulls() == []
    inventory.see_nodes("deleted", [Node("n", OTHER)])
    assert inventory.weight == 0
    inventory.see_nodes("changed", [Node("n", BIG)])
    assert inventory.take_pulls() == []


def test_attack_pods_without_end_take_bounded_memory_and_absurd_durations_are_bounded():
    inventory = watching()
    inventory.see_pods("listed", [Pod(uid=str(n)) for n in range(2 * MOST_OPEN)])
    heavy = inventory.weight
    inventory.see_pods("changed", [Pod(uid=f"more-{n}") for n in range(MOST_OPEN)])
    assert inventory.weight == heavy
    inventory.see_pods("changed", [Pod(uid="0", pull_seconds=10**12)])
    inventory.see_nodes("changed", [Node("n", BIG)])
    assert inventory.take_pulls() == [PullSample(class_of(3000), LONGEST_SECONDS)]


def test_pulls_that_were_not_recorded_are_given_back_in_order():
    inventory = watching()
    inventory.give_back([PullSample(1, 5), PullSample(2, 6)])
    inventory.give_back([PullSample(0, 4)])
    assert inventory.take_pulls() == [PullSample(0, 4), PullSample(1, 5), PullSample(2, 6)]


def test_only_a_change_of_images_counts_as_one():
    inventory = watching()
    assert inventory.has_changed
    assert inventory.snapshot() == {"n": OTHER}
    inventory.see_nodes("changed", [Node("n", OTHER)])
    inventory.see_nodes("listed", [Node("n", OTHER)])
    inventory.see_nodes("deleted", [Node("m")])
    assert not inventory.has_changed
    inventory.see_nodes("deleted", [Node("n")])
    assert inventory.has_changed
    assert inventory.snapshot() == {}


def test_a_few_lies_do_not_move_what_is_expected():
    size_class = class_of(3000)
    assert expected_seconds([], size_class) == USUAL_SECONDS[size_class]
    assert expected_seconds([1] * (FEWEST_PULLS - 1), size_class) == USUAL_SECONDS[size_class]
    assert expected_seconds([40, 3600, 42, 0, 41], size_class) == 41
    assert expected_seconds([10**9] * 15, size_class) == LONGEST_SECONDS
    assert expected_seconds([-4] * 15, size_class) == 0


@pytest.mark.parametrize(("size", "size_class"), [(0, 0), (64, 0), (65, 1), (1024, 2), (16384, 4), (LARGEST_MIB, 5)])
def test_every_size_has_a_class_with_a_usual_duration(size, size_class):
    assert class_of(size) == size_class
    assert USUAL_SECONDS[size_class] > 0
