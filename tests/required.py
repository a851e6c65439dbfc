"""Keeps whole classes of tests from quietly not running: what they need is brought or asked for by name before the first
test, and in CI a skipped, deselected or absent class fails the run."""

import os
from collections import Counter

import pytest

from devtools import browser
from devtools.localfleet import binaries
from devtools.localfleet.binaries import BuildFailed
from devtools.parts import REQUIRED
from devtools.wheels import CannotBring

_ran: Counter[str] = Counter()
_left_out: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    """Brings what the selected tests need, outside any test's time limit."""
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in REQUIRED if item.get_closest_marker(name)}
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            if "browser" in wanted:
                browser.locate()
            if "kube" in wanted:
                binaries.locate()
        except CannotBring as failure:
            pytest.exit(f"the browser tests need Chromium: {failure}", 4)
        except BuildFailed as failure:
            pytest.exit(f"the kube tests need Kubernetes' programs: {failure}", 4)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Faults at full length take the better part of an hour: `make test-long` runs those alone."""
    is_long = bool(os.environ.get("LONG_TESTS"))
    left_out = [item for item in items if bool(item.get_closest_marker("long")) != is_long]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def pytest_deselected(items):
    if os.environ.get("LONG_TESTS"):
        return
    asked = [item for item in items if not item.get_closest_marker("long")]
    _left_out.update(name for item in asked for name in REQUIRED if item.get_closest_marker(name))


def pytest_runtest_logreport(report):
    names = [name for name in REQUIRED if name in report.keywords]
    if report.skipped:
        _left_out.update(names)
    elif report.when == "call":
        _ran.update(names)


def _complaints(config) -> list[str]:
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    expected = REQUIRED if is_whole else os.environ.get("TESTS_THAT_MUST_RUN", "").split()
    found = [f"{count} {name} tests were skipped or deselected" for name, count in _left_out.items()]
    if not config.option.collectonly:
        found += [f"no {name} test ran" for name in expected if not _ran[name]]
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    is_worker = hasattr(session.config, "workerinput")
    if (
        os.environ.get("CI") == "true"
        and not is_worker
        and exitstatus == pytest.ExitCode.OK
        and _complaints(session.config)
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if os.environ.get("CI") == "true":
        for complaint in _complaints(config):
            terminalreporter.write_line(f"required in CI: {complaint}", red=True)
