"""With xdist, a process tells the one that prints no more than it prints."""

from importlib import import_module

from tests.reports import is_unread


def report(outcome: str, when: str) -> dict[str, str]:
    return {"outcome": outcome, "when": when}


def test_results_and_all_that_went_wrong_are_told_and_nothing_else():
    assert not is_unread("testreport", data=report("passed", "call"))
    for when in ("setup", "call", "teardown"):
        assert not is_unread("testreport", data=report("failed", when))
        assert not is_unread("testreport", data=report("skipped", when))
    for when in ("setup", "teardown"):
        assert is_unread("testreport", data=report("passed", when))
    assert is_unread("logstart", nodeid="x", location=())
    assert not is_unread("runtest_protocol_complete", item_index=1, duration=0.1)


def test_what_is_replaced_is_there():
    assert callable(import_module("xdist.remote").WorkerInteractor.sendevent)
