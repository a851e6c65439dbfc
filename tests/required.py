"""Keeps whole classes of tests from quietly not running: what they need is brought or asked for by name before the first
of them, and in CI a skipped, deselected or absent class fails the run."""

import os
from collections import Counter

import pytest

from devtools.parts import REQUIRED
from devtools.wheels import CannotBring

_ran: Counter[str] = Counter()
_left_out: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    """Brings the browser, if a selected test needs it, outside any test's time limit."""
    if session.config.option.collectonly or not any(item.get_closest_marker("browser") for item in session.items):
        return
    from devtools import browser  # noqa: PLC0415 - with it comes Playwright, which most runs do without

    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            browser.locate()
        except CannotBring as failure:
            pytest.exit(f"the browser tests need Chromium: {failure}", 4)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Waits for the control planes' programs, outside the time limit of the first test that needs them."""
    if item.get_closest_marker("kube"):
        _build(item.config)
    return (yield)


def _build(config):
    # Only here: with it comes all that starts control planes, which most runs do without.
    from devtools.localfleet import binaries  # noqa: PLC0415 - see above
    from devtools.localfleet.binaries import BuildFailed  # noqa: PLC0415 - see above

    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        try:
            binaries.locate()
        except BuildFailed as failure:
            pytest.exit(f"the kube tests need Kubernetes' programs: {failure}", 4)


def _is_marked(name):
    return lambda item: item.get_closest_marker(name) is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Tests of control planes come after those that need no program to be built. Browser tests are last: the browser's
    driver keeps an event loop running in the main thread, where others start theirs.

    Faults at full length take the better part of an hour: `make test-long` runs those alone.
    """
    if elsewhere := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"{elsewhere[0]}: this id is another one in each process; name the parameters by `ids`")
    items.sort(key=_is_marked("kube"))
    items.sort(key=_is_marked("browser"))
    is_long = bool(os.environ.get("LONG_TESTS"))
    left_out = [item for item in items if bool(item.get_closest_marker("long")) != is_long]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def pytest_deselected(items):
    if os.environ.get("LONG_TESTS"):
        return
    items = [item for item in items if isinstance(item, pytest.Item)]
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
