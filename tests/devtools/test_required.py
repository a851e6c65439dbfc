import os
import subprocess
import sys
from collections import Counter

import pytest

from devtools.parts import PARTS, REQUIRED, paths_of
from devtools.serve import PROJECT

PLUGIN = "tests.required"


def run(folder, *arguments, whole=False, **environment):
    """A pytest of its own on `folder`, with our plugin and markers and nothing else of ours, nor what others installed."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  kube: k\n  browser: b\n  processes: p\n  long: l\n"
        + ("testpaths = .\n" if whole else "")
    )
    ours = {"CI", "PYTEST_ADDOPTS", "TESTS_THAT_MUST_RUN"}
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "pytest_timeout", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            **clean,
            "PYTHONPATH": str(PROJECT),
            "KUBEBUILDER_ASSETS": str(folder),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "browser"))
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "browser"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.kube\ndef test_kube():\n    if os.environ.get('SKIP'):\n        pytest.skip('no')\n"
        "@pytest.mark.browser\ndef test_browser(): pass\n"
        "@pytest.mark.processes\ndef test_processes(): pass\n"
        "def test_plain(): pass\n"
    )
    return tmp_path


def test_a_whole_run_that_leaves_nothing_out_passes_in_ci(folder):
    assert run(folder, whole=True, CI="true").returncode == 0


def test_a_skipped_class_fails_the_run_in_ci_only(folder):
    done = run(folder, whole=True, CI="true", SKIP="1")
    assert done.returncode == 1
    assert "1 kube tests were skipped or deselected" in done.stdout
    assert run(folder, whole=True, SKIP="1").returncode == 0


def test_a_deselected_class_fails_the_run_in_ci(folder):
    done = run(folder, "-m", "not browser", whole=True, CI="true")
    assert done.returncode == 1
    assert "1 browser tests were skipped or deselected" in done.stdout


def test_what_takes_long_runs_when_asked_for_alone_and_is_missed_by_nobody_otherwise(folder):
    with (folder / "test_it.py").open("a") as file:
        file.write("@pytest.mark.kube\n@pytest.mark.long\ndef test_long(): pass\n")
    done = run(folder, whole=True, CI="true")
    assert (done.returncode, "4 passed, 1 deselected" in done.stdout) == (0, True)
    done = run(folder, ".", LONG_TESTS="1")
    assert (done.returncode, "1 passed, 4 deselected" in done.stdout) == (0, True)


def test_a_part_that_has_all_of_a_class_is_asked_for_it(folder):
    (folder / "test_it.py").write_text("def test_plain(): pass\n")
    done = run(folder, ".", CI="true", TESTS_THAT_MUST_RUN="kube")
    assert (done.returncode, "no kube test ran" in done.stdout) == (1, True)
    assert run(folder, ".", CI="true").returncode == 0


def test_every_file_of_tests_is_in_one_part():
    tests = PROJECT / "tests"
    paths = [path for plan in PARTS for path in paths_of(plan)]
    found = Counter(file for path in paths for file in (tests / path).rglob("test_*.py"))
    found.update(tests / path for path in paths if path.endswith(".py"))
    assert found == Counter(tests.rglob("test_*.py"))
    assert {*REQUIRED} <= {*paths}


def test_an_absent_class_fails_a_whole_run_and_not_a_named_part(folder):
    (folder / "test_it.py").write_text("def test_plain(): pass\n")
    done = run(folder, whole=True, CI="true")
    assert done.returncode == 1
    assert "no kube test ran" in done.stdout
    assert run(folder, "test_it.py", CI="true").returncode == 0


def test_tests_that_need_no_program_run_while_those_of_control_planes_are_built_and_browser_tests_last(folder):
    done = run(folder, "-v", whole=True)
    order = [line.split("::")[1].split()[0] for line in done.stdout.splitlines() if "PASSED" in line]
    assert order == ["test_processes", "test_plain", "test_kube", "test_browser"]
    (folder / "kwok").unlink()
    done = run(folder, whole=True)
    assert (done.returncode, "2 passed" in done.stdout) == (4, True)


def test_a_build_may_take_longer_than_the_first_test_that_waits_for_it(folder):
    """Another process has the lock, as the one that builds for all parts."""
    (folder / "conftest.py").write_text(
        "import time\nfrom devtools.localfleet import binaries\nbinaries.locate = lambda: time.sleep(1.5)\n"
    )
    assert run(folder, "-m", "kube", "--timeout=1", whole=True).returncode == 0


def test_missing_tools_are_named_before_the_first_test_that_needs_them(folder):
    done = run(folder, whole=True, CHROMIUM="/nowhere/chromium")
    assert done.returncode == 4
    assert "the browser tests need Chromium: CHROMIUM is /nowhere/chromium" in done.stdout + done.stderr
    (folder / "kwok").unlink()
    done = run(folder, "-m", "kube", whole=True)
    assert done.returncode == 4
    assert "lacks kwok" in done.stdout + done.stderr


def test_an_id_that_is_another_one_in_each_process_is_refused(folder):
    (folder / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('act', [lambda: 1], ids=str)\ndef test_it(act): pass\n"
    )
    done = run(folder)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "name the parameters by `ids`" in done.stderr
