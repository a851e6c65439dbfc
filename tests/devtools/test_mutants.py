"""`make mutants`: which mutants there are, which are drawn, and what counts as caught."""

import ast
import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from functools import cache
from itertools import accumulate

import pytest

from devtools.mutants.__main__ import LEAST_SHARE_CAUGHT, Trial, all_mutants, draw, engines, equivalents, report
from devtools.mutants.fates import Fate, Fates
from devtools.mutants.mutations import mutations
from devtools.serve import PROJECT


def mutated(source):
    return {one.applied(source.encode()).decode() for one in mutations(source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b <= c", {"a <= b <= c", "a < b < c"}),
        ("(a) == (b)", {"(a) != (b)"}),
        ("a is not b", {"a is b"}),
        ("a not in b", {"a in b"}),
        ("a in b", {"a not in b"}),
        ("(a and\n # and so on\n b or c)", {"(a or\n # and so on\n b or c)", "(a and\n # and so on\n b and c)"}),
        ("x = not a", {"x =  a"}),
        ("a += b", {"a -= b"}),
        ("a // b", {"a * b"}),
        ("x = -a", {"x = +a"}),
        ("x = 7", {"x = 8", "x = 6"}),
        ("x = 0", {"x = 1", "x = (-1)"}),
        ("x = True", {"x = False"}),
        ("x = 'ready'", {"x = 'readyXX'"}),
        ("max(a)", {"min(a)"}),
        ("any(a)", {"all(a)"}),
        ("if a(): b", {"if not (a()): b"}),
        ("[a for a in b if c]", {"[a for a in b if not (c)]"}),
        ("for a in b: break", {"for a in b: continue"}),
        ("ä = é < b", {"ä = é <= b"}),
    ],
)
def test_each_token_becomes_its_nearest_neighbour(source, expected):
    assert mutated(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: int | None = None) -> int | None: ...",
        "a: list[int] | None = None",
        "Row = dict[str, 'int']",
        "Kind: TypeAlias = Literal['text', 'money'] | None",
        "@dataclass(frozen=True)\nclass A: ...",
        "short = lru_cache(maxsize=4096)(long)",
        "assert a == 1",
        "zip(a, b, strict=True)",
        "a = field(repr=False)",
        "__slots__ = ('a',)",
        "def __repr__(self): return 'a' + 1",
        '"""a text"""',
        "x = f'{1 + 1} nodes'",
        "x = 'Not a node.'",
        "if TYPE_CHECKING: import a",
    ],
)
def test_what_no_behaviour_depends_on_is_left_alone(source):
    assert mutated(source) == set()


@cache
def statements(source):
    """Where each statement of a module begins and ends, with its whole lines."""
    ends = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    found = []
    for node in ast.parse(source).body:
        first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
        found.append((ends[first - 1], ends[node.end_lineno]))
    return found


def test_every_mutant_of_the_engines_compiles():
    """Only the module's statement that it changes is compiled: the others are as they were."""
    for mutant in all_mutants(engines(PROJECT)):
        change = mutant.mutation
        [(begin, end)] = [
            place for place in statements(mutant.source) if place[0] <= change.start and change.end <= place[1]
        ]
        compile(change.applied(mutant.source[:end])[begin:], mutant.file, "exec")


def test_every_accepted_equivalent_is_a_mutant_and_has_a_reason():
    found = list(all_mutants(engines(PROJECT)))
    for entry in equivalents():
        assert any(entry.is_of(mutant) for mutant in found), entry
        assert len(entry.reason) > 20, entry


def test_a_draw_takes_each_statement_once_and_the_same_seed_draws_the_same():
    crowded, plain = b"x = 1 + 2 + 3 + 4 + 5\n", b"y = a < b\nif a == b:\n    z = 1\n"
    found = [*all_mutants({"a.py": crowded, "b.py": plain})]
    assert sorted((one.file, one.mutation.line) for one in draw(found, 99, seed=5)) == [
        ("a.py", 1),
        ("b.py", 1),
        ("b.py", 2),
        ("b.py", 3),
    ]
    assert draw(found, 2, seed=5) == draw(found, 2, seed=5)
    assert len(draw(found, 2, seed=5)) == 2


def test_a_draw_can_be_of_files_and_folders():
    files = ("billing/engine/ledger.py", "billing/engines.py", "quotas/engine/holds.py")
    found = list(all_mutants(dict.fromkeys(files, b"x = a < b\n")))
    assert [one.file for one in found if one.is_in(["billing/engine"])] == [files[0]]
    assert [one.file for one in found if one.is_in(["billing/engine/", files[2]])] == [files[0], files[2]]
    assert [one.file for one in found if one.is_in([""])] == [*files]


def test_a_mutant_is_chosen_by_its_line_or_as_it_is_printed():
    found = list(all_mutants({"a.py": b"x = a < b\ny = 7\n"}))
    assert [str(one) for one in found if one.is_at(["a.py:2"])] == ["a.py:2  7 → 6", "a.py:2  7 → 8"]
    assert [str(one) for one in found if one.is_at(["a.py:2  7 → 8", "a.py:1"])] == ["a.py:1  < → <=", "a.py:2  7 → 8"]
    assert not [one for one in found if one.is_at(["a.py", "a.py:2  7 → 9", "b.py:1"])]


def test_a_change_of_one_statement_leaves_the_rest_of_a_draw_as_it_was():
    lines = [f"x{number} = {number} < a".encode() for number in range(40)]
    before = draw(all_mutants({"a.py": b"\n".join(lines)}), 30, seed=5)
    lines[7] = b"y = b"
    after = draw(all_mutants({"a.py": b"new = True\n" + b"\n".join(lines)}), 30, seed=5)

    def changes(drawn):
        return {(one.statement()[1], one.mutation.before, one.mutation.after) for one in drawn}

    assert len(changes(before) - changes(after)) <= 2
    assert draw(all_mutants({"a.py": b"\n".join(lines)}), 30, seed=6) != draw(
        all_mutants({"a.py": b"\n".join(lines)}), 30, seed=5
    )


def test_survivors_are_named_with_their_change_and_too_many_fail(capsys, tmp_path):
    found = list(all_mutants({"a.py": b"x = a < b\n"})) * 20
    trial = Trial(tmp_path, {}, Fates(tmp_path), Counter({"tests/engine": 17, "tests/rooms/federation": 1}), 61.6)
    assert report(found, found[:1], trial, seed=3) == 0
    assert report(found, found[:2], trial, seed=3) == 1
    told = capsys.readouterr().out
    assert "survives: a.py:1  < → <=" in told
    assert "-x = a < b\n+x = a <= b\n" in told
    figures = json.loads(told.splitlines()[-1])
    assert figures["mutants"] == 20
    assert figures["dead"] == 18
    assert figures["dead_by"] == {"tests/engine": 17, "tests/rooms/federation": 1}
    assert figures["survivors"][0] == {"mutant": "a.py:1  < → <=", "diff": "@@ -1 +1 @@\n-x = a < b\n+x = a <= b"}
    assert LEAST_SHARE_CAUGHT == 0.95


def test_the_fate_of_a_mutant_is_kept_for_exactly_its_tree_and_suite(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("x = 1\n")
    fates = Fates(tree)
    fates.keep("laws", "a.py:4-5 2", Fate("", 1.5))
    (kept,) = (tmp_path / "cache").rglob("fates-*")
    with kept.open("a") as file:
        file.write('\n{"of": "laws a.py:4-5 0", "catc')  # its writer was killed
    fates.keep("laws", "a.py:4-5 3", Fate("test_x", 0.5))
    found = Fates(tree)
    assert found.of("laws", "a.py:4-5 2") == Fate("", 1.5)
    assert found.of("laws", "a.py:4-5 3") == Fate("test_x", 0.5)
    assert found.of("laws", "a.py:4-5 0") is None
    assert found.of("rooms", "a.py:4-5 2") is None
    (tree / "a.py").write_text("x = 2\n")
    assert Fates(tree).of("laws", "a.py:4-5 2") is None


TRIAL = """
from pathlib import Path
from devtools.mutants import __main__ as trying, watchers as watching
from devtools.mutants.__main__ import Bench, Trial, all_mutants, engines
from devtools.mutants.fates import Fates
from devtools.mutants.forked import Plugin, run
from devtools.mutants.warm import Warm
from devtools.mutants.watchers import Suite, watchers

trying.LEAST_CPU_SECONDS = 1
tree, suite = Path.cwd(), Suite("tests/engine")
sources = engines(tree)
bench = Bench(tree, suite, watchers(tree, sources, suite))
for mutant in all_mutants(sources):
    print(mutant, "|", bench.catcher(mutant))
fates, mutants = Fates(tree), list(all_mutants(sources))
left = Trial(tree, sources, fates).survivors(suite, mutants[4:7])
again = Trial(tree, sources, fates)
assert again.survivors(suite, mutants[4:7]) == left
print("left |", *left, again.caught_by)
warm = Warm(tree, ["-x", *suite.files(tree)])
for mutant in mutants[:7]:
    limits = dict.fromkeys(bench.watchers.of(mutant.file, mutant.mutation), 2)
    print("warm |", mutant, "|", warm.catcher(mutant.file, mutant.source, mutant.mutation, limits))
separate = []
def counted(*given, **more):
    separate.append(given)
    return run(*given, **more)
trying.run = counted
both = Bench(tree, suite, bench.watchers, warm)
for mutant in mutants:
    separate.clear()
    print("both |", mutant, "|", both.catcher(mutant), "|", len(separate))
warm.close()
with (tree / "placement/kept.py").open("a") as kept:
    kept.write("# as it was\\n")
dear = watchers(tree, engines(tree), Suite("tests/engine", is_dear=True))
print("of a changed engine |", *sorted(dear.tests_of_changed["placement/kept.py"]))
watchers(tree, engines(tree), suite)
watching.LEAST_WALL_SECONDS, watching.WALL_SECONDS_FOR_EACH_OF_CPU = 1, 0
waits = tree / "tests/engine/test_waits.py"
waits.write_text("import time\\ndef test_waits(): time.sleep(600)\\n")
name = "tests/engine/test_waits.py::test_waits"
print("waits |", run(tree, [str(waits)], watching.Selected({name: 2}), cpu_seconds=20).reported.strip())
endless = tree / "tests" / "endless.py"
endless.write_text("def test_it():\\n    while True: pass\\n")
print("endless |", run(tree, [str(endless)], Plugin(), cpu_seconds=2).status)
"""


ENGINE = (
    "LIMIT = 5\ndef fits(a):\n    return a <= LIMIT\ndef unseen(a):\n    return a < 0\n"
    "def counted(a):\n    while a:\n        a -= 1\n"
)


def lay_out(tmp_path):
    """A small tree of engines and their tests."""
    (tmp_path / "tests/engine").mkdir(parents=True)
    (tmp_path / "placement").mkdir()
    (tmp_path / "placement/__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:django\n")
    (tmp_path / "placement/room.py").write_text(ENGINE)
    (tmp_path / "placement/codes.py").write_text("FULL = 'full'\ndef shown(code): return code\n")
    (tmp_path / "tests/engine/test_codes.py").write_text(
        "from placement import codes\n"
        "def test_a_code_is_shown(): assert codes.shown('full')\n"
        "def test_the_code_stays(): assert codes.FULL == 'full'\n"
    )
    (tmp_path / "placement/kept.py").write_text("from functools import cache\n@cache\ndef size(): return 3\n")
    (tmp_path / "tests/engine/test_kept.py").write_text(
        "from placement.kept import size\n"
        "def test_that_calls_it_first(): assert size()\n"
        "def test_a_kept_size(): assert size() == 3\n"
    )
    (tmp_path / "placement/sooner.py").write_text("def sooner():\n    return 2\n")
    (tmp_path / "tests/engine/test_sooner.py").write_text(
        "from placement.sooner import sooner\n"
        "FOUND = sooner()\n"
        "def test_what_was_found_before(): assert FOUND == 2\n"
        "def test_that_calls_it(): assert sooner()\n"
    )
    (tmp_path / "tests/engine/test_room.py").write_text(
        "from placement.room import counted, fits\n"
        "def test_the_limit_itself_fits(): assert fits(5) and not fits(6)\n"
        "def test_counting_ends(): counted(10)\n"
    )


def try_all(tmp_path):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRIAL)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_mutant_is_caught_by_the_test_that_runs_its_line_and_the_tree_is_left_as_it_was(tmp_path):
    lay_out(tmp_path)
    done = try_all(tmp_path)
    assert re.sub(r" [0-9.]+ s", " T s", done.stdout).splitlines() == [
        "recording which lines 4 files of tests/engine run",
        "placement/codes.py:1  'full' → 'fullXX' | tests/engine/test_codes.py::test_the_code_stays",
        "placement/kept.py:3  3 → 2 | tests/engine/test_kept.py::test_a_kept_size",
        "placement/kept.py:3  3 → 4 | tests/engine/test_kept.py::test_a_kept_size",
        "placement/room.py:1  5 → 4 | tests/engine/test_room.py::test_the_limit_itself_fits",
        "placement/room.py:1  5 → 6 | tests/engine/test_room.py::test_the_limit_itself_fits",
        "placement/room.py:3  <= → < | tests/engine/test_room.py::test_the_limit_itself_fits",
        "placement/room.py:5  < → <= | ",
        "placement/room.py:5  0 → (-1) | ",
        "placement/room.py:5  0 → 1 | ",
        "placement/room.py:7  a → not (a) | ",
        "placement/room.py:8  -= → += | tests/engine/test_room.py::test_counting_ends, which does not end",
        "placement/room.py:8  1 → 0 | tests/engine/test_room.py::test_counting_ends, which does not end",
        "placement/room.py:8  1 → 2 | ",
        "placement/sooner.py:2  2 → 1 | tests/engine/test_sooner.py::test_what_was_found_before",
        "placement/sooner.py:2  2 → 3 | tests/engine/test_sooner.py::test_what_was_found_before",
        "[tests/engine 1/3 T s] placement/room.py:1  5 → 6  caught by tests/engine/test_room.py::test_the_limit_itself_fits",
        "[tests/engine 2/3 T s] placement/room.py:3  <= → <  caught by tests/engine/test_room.py::test_the_limit_itself_fits",
        "[tests/engine 3/3 T s] placement/room.py:5  < → <=  SURVIVES",
        "[tests/engine 1/3 T s before] placement/room.py:1  5 → 6  caught by tests/engine/test_room.py::test_the_limit_itself_fits",
        "[tests/engine 2/3 T s before] placement/room.py:3  <= → <  caught by tests/engine/test_room.py::test_the_limit_itself_fits",
        "[tests/engine 3/3 T s before] placement/room.py:5  < → <=  SURVIVES",
        "left | placement/room.py:5  < → <= Counter({'tests/engine': 2})",
        "warm | placement/codes.py:1  'full' → 'fullXX' | None",
        "warm | placement/kept.py:3  3 → 2 | tests/engine/test_kept.py::test_a_kept_size",
        "warm | placement/kept.py:3  3 → 4 | tests/engine/test_kept.py::test_a_kept_size",
        "warm | placement/room.py:1  5 → 4 | None",
        "warm | placement/room.py:1  5 → 6 | None",
        "warm | placement/room.py:3  <= → < | tests/engine/test_room.py::test_the_limit_itself_fits",
        "warm | placement/room.py:5  < → <= | None",
        "both | placement/codes.py:1  'full' → 'fullXX' | tests/engine/test_codes.py::test_the_code_stays | 1",
        "both | placement/kept.py:3  3 → 2 | tests/engine/test_kept.py::test_a_kept_size | 0",
        "both | placement/kept.py:3  3 → 4 | tests/engine/test_kept.py::test_a_kept_size | 0",
        "both | placement/room.py:1  5 → 4 | tests/engine/test_room.py::test_the_limit_itself_fits | 1",
        "both | placement/room.py:1  5 → 6 | tests/engine/test_room.py::test_the_limit_itself_fits | 1",
        "both | placement/room.py:3  <= → < | tests/engine/test_room.py::test_the_limit_itself_fits | 0",
        "both | placement/room.py:5  < → <= |  | 0",
        "both | placement/room.py:5  0 → (-1) |  | 0",
        "both | placement/room.py:5  0 → 1 |  | 0",
        "both | placement/room.py:7  a → not (a) |  | 0",
        "both | placement/room.py:8  -= → += | tests/engine/test_room.py::test_counting_ends, which does not end | 0",
        "both | placement/room.py:8  1 → 0 | tests/engine/test_room.py::test_counting_ends, which does not end | 0",
        "both | placement/room.py:8  1 → 2 |  | 0",
        "both | placement/sooner.py:2  2 → 1 | tests/engine/test_sooner.py::test_what_was_found_before | 1",
        "both | placement/sooner.py:2  2 → 3 | tests/engine/test_sooner.py::test_what_was_found_before | 1",
        "of a changed engine | tests/engine/test_kept.py::test_a_kept_size tests/engine/test_kept.py::test_that_calls_it_first",
        "recording which lines 1 files of tests/engine run",
        "waits | tests/engine/test_waits.py::test_waits, which does not end",
        "endless | None",
    ], done.stderr
    assert (tmp_path / "placement/room.py").read_text() == ENGINE
