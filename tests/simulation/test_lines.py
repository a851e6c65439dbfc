"""The report of lines that no seed reached."""

import sys
from types import ModuleType

from greenlet import getcurrent, greenlet

from devtools.simulation.seeds import lines
from devtools.simulation.seeds.lines import LEFT_OUT, MEASURED, ROOT, Lines, figures_of, lines_of, ranges

INNER = """
def go(hand_over):
    hand_over()
    return 1


"""
OUTER = """
def go(start):
    start()
    one = 1
    two = 2
    return one + two
"""


def test_missed_lines_are_told_as_ranges_that_no_reached_statement_interrupts():
    statements = [3, 5, 6, 9, 10, 14, 20]
    assert ranges([5, 6, 10, 14], statements) == "5-6, 10-14"
    assert ranges([3, 6, 10, 20], statements) == "3, 6, 10, 20"
    assert ranges([], statements) == ""


def test_what_is_measured_exists():
    for patterns in MEASURED.values():
        for pattern in patterns:
            assert list(ROOT.glob(pattern)), pattern


def test_what_is_left_out_exists_and_has_a_reason():
    files = [path for patterns in MEASURED.values() for pattern in patterns for path in ROOT.glob(pattern)]
    for what, why in LEFT_OUT.items():
        assert any(lines_of(what, path) for path in files), what
        assert len(why.split()) > 4


def test_the_figures_say_what_there_is_with_what_is_left_out_and_without(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "ROOT", tmp_path)
    monkeypatch.setattr(lines, "MEASURED", {"here": ("*.py",)})
    monkeypatch.setattr(lines, "LEFT_OUT", {"demo.py": "a demo", "row.py __str__": "a name"})
    (tmp_path / "demo.py").write_text("one = 1\ntwo = 2\n")
    (tmp_path / "row.py").write_text(
        "class Row:\n    def __str__(self):\n        return 'row'\n\n    def go(self):\n        return 1\n"
    )
    found = figures_of([{"demo.py": [], "row.py": [1, 2, 5]}, {"demo.py": [], "row.py": [1]}])
    assert found == {
        "percent": 75.0, "lines": 4, "rooms": {"here": 75.0}, "with_left_out": {"percent": 42.9, "lines": 7, "rooms": {"here": 42.9}},
        "left_out": {"demo.py": {"lines": 2, "why": "a demo"}, "row.py __str__": {"lines": 1, "why": "a name"}},
        "not_reached": {"row.py": "6"},
    }  # fmt: skip


def module_of(path, text):
    path.write_text(text)
    module = ModuleType(path.stem)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def hand_over(actor):
    """As the scheduler does: in a function of its own."""
    actor.switch()


def test_lines_count_for_the_file_whose_actor_runs_although_actors_switch_within_functions(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "ROOT", tmp_path)
    monkeypatch.setattr(lines, "MEASURED", {"here": ("*.py",)})
    was = sys.gettrace()
    try:
        counter = Lines()
        with counter.counted():
            inner, outer = module_of(tmp_path / "inner.py", INNER), module_of(tmp_path / "outer.py", OUTER)
            back = getcurrent()
            actor = greenlet(lambda: inner.go(lambda: hand_over(back)))
            outer.go(lambda: hand_over(actor))
            actor.switch()
    finally:
        sys.settrace(was)
    assert counter.reached() == {"inner.py": [2, 3, 4], "outer.py": [2, 3, 4, 5, 6]}
