import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from devtools import wheels
from devtools.localfleet import binaries
from devtools.localfleet.binaries import PROGRAMS, BuildFailed, locate
from devtools.serve import PROJECT


def stand_in(folder, script):
    """A `go` that writes the file named after -o."""
    folder.mkdir(parents=True)
    go = folder / "go"
    go.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n{script}\n')
    go.chmod(0o755)


def unreachable(_pin, _folder):
    raise wheels.CannotBring("PyPI does not answer")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def test_every_program_is_built_once(cache, capfd):
    stand_in(cache / "bin", f'echo x >> {cache}/calls; printf "#!/bin/sh" > "$2"; chmod +x "$2"')
    first = locate()
    assert set(first) == set(PROGRAMS)
    assert all(os.access(path, os.X_OK) for path in first.values())
    assert locate() == first
    assert (cache / "calls").read_text().count("x") == len(PROGRAMS)
    assert "building etcd" in capfd.readouterr().err


def test_a_build_collects_garbage_less_often_unless_the_environment_says_how_often(cache, monkeypatch):
    stand_in(cache / "bin", f'echo "$GOGC" >> {cache}/calls; touch "$2"; chmod +x "$2"')
    monkeypatch.delenv("GOGC", raising=False)
    locate(["etcd"])
    monkeypatch.setenv("GOGC", "50")
    locate(["kwok"])
    assert (cache / "calls").read_text().split() == ["400", "50"]


def test_only_what_is_asked_for_is_built(cache):
    stand_in(cache / "bin", 'touch "$2"; chmod +x "$2"')
    (path,) = locate(["etcd"]).values()
    assert sorted(file.name for file in path.parent.iterdir() if not file.name.startswith(".")) == ["etcd", "etcd.log"]


def test_a_failed_build_leaves_nothing_and_says_why(cache):
    stand_in(cache / "bin", 'echo "cannot find module" >&2; touch "$2"; exit 1')
    with pytest.raises(BuildFailed, match="cannot find module"):
        locate(["etcd"])
    folder = binaries.cache_folder()
    assert not (folder / "etcd").exists()
    assert not list(folder.glob("*.partial"))


def test_a_killed_build_leaves_nothing_that_looks_finished(cache):
    stand_in(cache / "bin", f'touch "$2"; touch {cache}/begun; exec sleep 60')
    process = subprocess.Popen(
        [sys.executable, "-m", "devtools.localfleet", "build"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 30
    while not (cache / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    folder = binaries.cache_folder()
    assert not (folder / "etcd").exists()
    go = cache / "bin" / "go"
    go.write_text(go.read_text().replace("exec sleep 60", 'chmod +x "$2"'))
    assert locate(["etcd"])["etcd"].stat().st_mode & stat.S_IXUSR
    assert not list(folder.glob("*.partial"))


def test_go_comes_from_its_wheel_where_the_machine_has_none(cache, monkeypatch):
    stand_in(cache / "wheel" / "go" / "bin", '/usr/bin/touch "$2"; /bin/chmod +x "$2"')
    (cache / "bin").mkdir()
    os.environ["PATH"] = str(cache / "bin")
    monkeypatch.setattr(wheels, "bring", lambda name: {"go": cache / "wheel"}[name])
    assert locate(["etcd"])["etcd"].exists()


def test_without_go_and_its_wheel_the_error_names_both_ways_out(cache, monkeypatch):
    (cache / "bin").mkdir()
    os.environ["PATH"] = str(cache / "bin")
    monkeypatch.setattr(wheels, "_install", unreachable)
    with pytest.raises(BuildFailed, match=r"install Go .* or set KUBEBUILDER_ASSETS to a folder that holds: etcd"):
        locate(["etcd"])


def test_a_folder_named_by_the_environment_is_used_as_it_is(cache, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(cache))
    (cache / "etcd").touch(mode=0o755)
    assert locate(["etcd"]) == {"etcd": cache / "etcd"}
    with pytest.raises(BuildFailed, match="lacks kwok"):
        locate(["etcd", "kwok"])


def test_the_cache_folder_follows_the_pins(cache, monkeypatch, tmp_path):
    before = binaries.cache_folder()
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text((binaries.MODULE / name).read_text() + "\n// another pin\n")
    monkeypatch.setattr(binaries, "MODULE", tmp_path)
    assert binaries.cache_folder() != before
