"""Every reason code has a writer, and no code is written as a plain string."""

import ast

from placement.values.reason_codes import ReasonCode

from .source import ROOT, files, name, nodes, tree

LIST = ROOT / "placement/values/reason_codes.py"
WRITERS = ("federation", "placement")
FIELDS = {"reason_code", "end_reason", "stop_reason"}
MAKERS = {
    "Reason",
    "Shortage",
    "Verdict",
    "Gate",
    "Wait",
    "Ending",
    "Consequence",
    "Stopped",
    "Withdrawn",
    "ask_to_stop",
    "_abandoned",
}
"""What is made with a code among its arguments."""


def bare_codes(module):
    """Codes written as plain strings where a ReasonCode belongs."""
    known, found = {code.value for code in ReasonCode}, []
    for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
        made = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [keyword.value for keyword in call.keywords if keyword.arg in FIELDS]
        given += call.args if made in MAKERS else []
        found += [each.value for each in given if isinstance(each, ast.Constant) and each.value in known]
    return found


def test_every_reason_code_has_a_writer():
    written = set()
    for path in files(WRITERS):
        if path == LIST or "ReasonCode" not in path.read_text():
            continue
        compared = {id(part) for node in nodes(path, ast.Compare) for part in ast.walk(node)}
        for node in nodes(path, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "ReasonCode" and id(node) not in compared:
                written.add(node.attr)
    silent = {code.name for code in ReasonCode} - written
    assert not silent, f"nothing gives these: {silent}"


def test_no_code_is_written_as_a_plain_string():
    bare = {name(path): codes for path in files(WRITERS) if (codes := bare_codes(tree(path)))}
    assert not bare, f"take them from ReasonCode: {bare}"


def test_a_code_written_as_a_plain_string_is_seen():
    assert bare_codes(ast.parse("rows.update(reason_code='new')"))
    assert bare_codes(ast.parse("Ending(one, AttemptState.FAILED, 'job_failed')"))
