"""When datasets are copied, what a copy's Job says of it, when jobs stop waiting, and the copy program itself."""

import hashlib
import os
import subprocess
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from clusters.engine.staging import is_path, is_sha256, overlap, why_not
from clusters.engine.storages import KnownStorage
from federation.engine.objects.copy_programs import FROM_BUCKET, FROM_FOLDER
from federation.engine.objects.stage_jobs import SOURCE, TARGET, stage_spec
from federation.engine.staging import (
    DEADLINE,
    LINK_IN_THE_WAY,
    MOST_FAILURES,
    NOT_WHOLE,
    NOTHING_THERE,
    WRONG_DIGEST,
    Outcome,
    Progress,
    Standing,
    progress_in,
    too_late,
    verdict,
    wait_ends,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TENANT = UUID(int=7)
SUM = "ab" * 32
GOING = SimpleNamespace(outcome="", reason="", message="")


def storage(name="fast", claim="", prefix="", *, tenant="acme", is_writable=True):
    return KnownStorage(UUID(int=1), "acme", tenant, name, claim or name, is_writable, prefix)


def pod(phase="Running", reason="", exit_code=None, message=""):
    return SimpleNamespace(phase=phase, reason=reason, exit_code=exit_code, message=message, node="n", ending="")


def job(outcome, reason="", message=""):
    return SimpleNamespace(outcome=outcome, reason=reason, message=message)


def standing(**fields):
    usual = {"is_wanted": True, "is_live": False, "is_staged": False, "failures": 0, "ended_at": None}
    return Standing(**usual | fields)


def test_a_copy_begins_unless_something_is_in_the_way():
    assert standing().may_begin(NOW)
    for fields in ({"is_live": True}, {"is_staged": True}, {"is_wanted": False}, {"why_not": "drained"}):
        assert not standing(**fields).may_begin(NOW)


def test_failures_pause_longer_and_the_third_stops():
    for failures, pause in ((1, MINUTE), (2, 2 * MINUTE)):
        one = standing(failures=failures, ended_at=NOW)
        assert one.next_at == NOW + pause
        assert not one.may_begin(NOW + pause - timedelta(seconds=1))
        assert one.may_begin(NOW + pause)
        assert not one.is_stopped
    stopped = standing(failures=MOST_FAILURES, ended_at=NOW)
    assert (stopped.is_stopped, stopped.next_at, stopped.may_begin(NOW + timedelta(days=1))) == (True, None, False)
    assert not standing(failures=3, ended_at=NOW, is_live=True).is_stopped
    assert not standing(is_wanted=False, is_staged=True).is_stopped
    assert standing(is_wanted=False).is_stopped


THERE = standing(is_staged=True, is_wanted=False)


@pytest.mark.parametrize(
    ("parts", "fields", "end"),
    [
        ([THERE, THERE], {}, "ready"),
        ([THERE, standing()], {}, ""),
        ([THERE, None], {}, "failed"),
        ([THERE, standing(failures=3)], {}, "failed"),
        ([standing(failures=2, ended_at=NOW)], {}, ""),
        ([standing(is_live=True)], {"until_at": NOW}, "late"),
        ([standing(is_live=True)], {"is_open": False}, "closed"),
        ([None], {"is_open": False}, "closed"),
        ([THERE], {"is_queued": False}, "over"),
        ([THERE], {"until_at": NOW, "is_open": False}, "ready"),
    ],
)
def test_a_wait_ends_for_one_reason(parts, fields, end):
    usual = {"is_queued": True, "is_open": True, "until_at": NOW + MINUTE, "now": NOW}
    assert wait_ends(parts, **usual | fields) == end


def test_only_the_jobs_own_success_is_one():
    assert verdict([], job("succeeded"), MINUTE, Progress()).outcome == Outcome.STAGED
    ended = [pod("Succeeded", exit_code=0)]
    assert verdict(ended, None, MINUTE, Progress(1, 1, SUM)).outcome == Outcome.FAILED
    assert verdict(ended, GOING, MINUTE, Progress(1, 1, SUM)).outcome == ""


def test_a_failure_is_told_in_the_most_exact_words():
    failed = job("failed", "BackoffLimitExceeded", "no more")
    said = Progress(last_line="cp: cannot read")
    assert verdict([pod("Failed", exit_code=1)], failed, MINUTE, said).message == "cp: cannot read"
    assert verdict([pod("Failed", exit_code=NOTHING_THERE)], failed, MINUTE, said).message.startswith(
        "There is nothing"
    )
    assert "sha256" in verdict([pod("Failed", exit_code=WRONG_DIGEST)], failed, MINUTE, said).message
    assert verdict([pod("Failed", "OOMKilled", 137)], failed, MINUTE, Progress()).message == "OOMKilled"
    assert verdict([], failed, MINUTE, Progress()).message == "BackoffLimitExceeded: no more"
    assert len(verdict([], job("failed", "x" * 900), MINUTE, Progress()).message) == 300


@pytest.mark.parametrize(
    ("reason", "patience"),
    [
        ("InvalidImageName: x", timedelta()),
        ("ErrImagePull: x", MINUTE),
        ("Unschedulable: x", 5 * MINUTE),
        ("CreateContainerConfigError: x", 5 * MINUTE),
    ],
)
def test_what_a_pod_waits_for_ends_a_copy_after_a_while(reason, patience):
    waits = [pod("Pending", reason)]
    assert verdict(waits, GOING, patience, Progress()) == (Outcome.FAILED, reason)
    if patience:
        assert verdict(waits, GOING, patience - timedelta(seconds=1), Progress()) == ("", reason)
    assert verdict([pod("Pending", "ContainerCreating")], GOING, 9 * MINUTE, Progress()).outcome == ""
    assert verdict([], GOING, DEADLINE, Progress()).outcome == ""
    assert verdict([], GOING, DEADLINE + MINUTE, Progress()) == too_late("")


def test_places_that_contain_each_other_overlap():
    fast, other = storage(), storage("other", "fast", "deep")
    assert overlap(fast, "a", fast, "a/b", TENANT)
    assert overlap(fast, "a/b", fast, "a", TENANT)
    assert overlap(fast, "a", fast, "a", TENANT)
    assert overlap(fast, "deep", other, "x", TENANT), "two storages of one claim"
    assert not overlap(fast, "a", fast, "ab", TENANT)
    assert not overlap(fast, "a", storage("slow"), "a", TENANT)
    assert overlap(storage(prefix="{tenant}"), "a", storage(prefix=str(TENANT)), "a", TENANT)


def test_what_a_plan_may_use():
    assert why_not(storage(is_writable=False), storage(), "acme/x") == ""
    assert why_not(storage("s"), storage("t", is_writable=False), "acme") == "The storage t is read-only."
    assert why_not(storage("s", tenant="acme/b"), storage(), "acme/a") == "The storage s does not serve acme/a."
    assert why_not(storage(), storage("t", tenant="acme/b"), "acme/a") == "The storage t does not serve acme/a."
    assert is_path("a/b")
    assert not is_path("")
    assert is_sha256(SUM)
    assert not is_sha256(SUM.upper())
    assert not is_sha256(f"{SUM}\n")


def run(source, target, *more, commands=""):
    """`commands`: a folder whose commands take the place of the usual ones."""
    command = stage_spec("registry.example/busybox:1", "")["pod_sets"][0]["command"]
    assert command[2] == FROM_FOLDER
    arguments = ["--from", str(source), "--to", str(target), *more]
    own = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"} if commands else None
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=60, env=own)


def test_the_program_copies_hostile_names_and_reports_the_documented_digest(tmp_path):
    source, target = tmp_path / "from", tmp_path / "to"
    files = {"a": b"1", "-rf": b"22", "d/$(touch x)": b"333", "d/ two\nlines": b"4444", "d/`id`": b"", "é": b"5"}
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    (source / "link").symlink_to("/etc/passwd")
    target.mkdir()
    (target / "older").write_text("stays")
    done = run(source, target)
    assert done.returncode == 0, done
    assert {name: (target / name).read_bytes() for name in files} == files
    assert (target / "link").is_symlink()
    found = progress_in(done.stdout)
    assert (found.copied, found.total) == (11, 11)
    wanted = subprocess.run(
        "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum",
        shell=True, cwd=source, capture_output=True, text=True, check=True,
    ).stdout.split()[0]  # fmt: skip
    assert found.sha256 == wanted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "to"]
    assert run(source, target, "--sha256", wanted).returncode == 0, "again, it does the same"
    assert run(source, target, "--sha256", hashlib.sha256().hexdigest()).returncode == WRONG_DIGEST


@pytest.mark.parametrize(
    ("command", "meanwhile"),
    [
        ("cp", '/bin/cp "$@"; rm TO/d/b'),
        ("cp", '/bin/cp "$@"; echo new > FROM/later'),
        ("cp", '/bin/cp "$@"; rm TO/d/b; mkdir TO/d/b'),
        ("sort", "cat; exit 2"),
    ],
)
def test_a_copy_in_which_files_of_the_source_are_missing_is_a_failure(tmp_path, command, meanwhile):
    source, target, own = (tmp_path / name for name in ("from", "to", "bin"))
    (source / "d").mkdir(parents=True)
    for name in ("a", "d/b", "d/c"):
        (source / name).write_text(name)
    target.mkdir()
    own.mkdir()
    text = meanwhile.replace("FROM", str(source)).replace("TO", str(target))
    (own / command).write_text(f"#!/bin/sh\n{text}\n")
    (own / command).chmod(0o755)
    done = run(source, target, commands=own)
    assert done.returncode == NOT_WHOLE, done
    assert progress_in(done.stdout).sha256 == ""
    failed = verdict([pod("Failed", exit_code=NOT_WHOLE)], job("failed"), MINUTE, Progress())
    assert failed.message.startswith("Files of its source are missing")


LINKS = {
    "of a file": ("d/b", "elsewhere/b"),
    "of a folder": ("d", "elsewhere"),
    "to nothing": ("a", "nowhere"),
    "to itself": ("a", "a"),
}


@pytest.mark.parametrize("what", LINKS)
@pytest.mark.parametrize("command", ["", "cp", "sort"], ids=["before", "during", "after"])
def test_a_link_at_the_target_leads_no_copy_and_no_digest_elsewhere(tmp_path, what, command):
    """Who writes to the storage could plant one: the copy would be in the pod alone, and its digest that of the source."""
    source, target, own = (tmp_path / name for name in ("from", "to", "bin"))
    for folder in (source / "d", target, own, tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
    for name in ("a", "d/b"):
        (source / name).write_text(name)
    (tmp_path / "elsewhere" / "b").write_text("d/b" if command else "of others")
    name, place = LINKS[what]
    plant = f"mkdir -p $(dirname {target / name}); rm -rf {target / name}; ln -s {tmp_path / place} {target / name}"
    if not command:
        subprocess.run(plant, shell=True, check=True)
    elif command == "cp":
        (own / "cp").write_text(f'#!/bin/sh\n/bin/cp "$@"\n{plant}\n')
    else:
        (own / "sort").write_text(
            f'#!/bin/sh\ntest -e {target / "d" / "b"} && {{ {plant}; }}\nexec /usr/bin/sort "$@"\n'
        )
    for one in own.iterdir():
        one.chmod(0o755)
    done = run(source, target, commands=own)
    assert done.returncode == LINK_IN_THE_WAY, done
    assert progress_in(done.stdout).sha256 == ""
    assert (tmp_path / "elsewhere" / "b").read_text() == ("d/b" if command else "of others")
    assert not (tmp_path / "nowhere").exists()
    failed = verdict([pod("Failed", exit_code=LINK_IN_THE_WAY)], job("failed"), MINUTE, Progress())
    assert failed.message.startswith("A symbolic link at its target")


def test_another_digest_than_the_wanted_one_is_no_success():
    ended = job("succeeded")
    assert verdict([], ended, MINUTE, Progress(1, 1, SUM), SUM).outcome == Outcome.STAGED
    assert verdict([], ended, MINUTE, Progress(), SUM).outcome == Outcome.STAGED, "its program has compared it"
    assert verdict([], ended, MINUTE, Progress(1, 1, "cd" * 32), SUM).outcome == Outcome.FAILED
    assert verdict([], ended, MINUTE, Progress(1, 1, "cd" * 32)).outcome == Outcome.STAGED


def test_the_program_refuses_an_empty_source_and_other_arguments(tmp_path):
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    assert run(source, target).returncode == NOTHING_THERE
    assert run(source, target, "--command", "id").returncode == 64
    (source / "a").write_text("1")
    missing = run(source, tmp_path / "nowhere" / "deeper")
    assert missing.returncode not in (0, NOTHING_THERE, WRONG_DIGEST)
    assert progress_in(missing.stdout).sha256 == ""


def test_the_program_has_no_variables_that_kubernetes_expands():
    for program in (FROM_FOLDER, FROM_BUCKET):
        assert "$(" not in program
        assert "$$" not in program
    assert (SOURCE, TARGET) == ("/switchyard/from", "/switchyard/to")
