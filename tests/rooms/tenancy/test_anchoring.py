"""What an insider with every right over the database does to the trail, after its head was written down elsewhere."""

import json
import logging
from importlib import import_module

import pytest
from django.db import IntegrityError, connection, transaction

from tenancy.models import AuditEntry, AuditWatch
from tenancy.operations import accept_audit, anchor_audit, record_audit
from tenancy.queries import SYSTEM, audit_head, audit_watch
from tests.builders import bind, make_user

from .test_verify_audit import entry, tamper, verdict

pytestmark = pytest.mark.django_db(transaction=True)
anchoring = import_module("tenancy.operations.anchoring")


def add(count=1, detail=None):
    for _ in range(count):
        record_audit(SYSTEM, "thing.change", object_kind="thing", detail=detail or {})


@pytest.fixture
def file(tmp_path, settings):
    path = tmp_path / "anchors.jsonl"
    settings.AUDIT_ANCHORS = str(path)
    return path


@pytest.fixture
def anchored(file):
    """Six entries, anchored twice: at 3 and at 6."""
    add(3)
    anchor_audit()
    add(3)
    anchor_audit()
    assert audit_watch().fault == ""
    return file


def found():
    anchor_audit()
    return audit_watch().fault


def cut_the_tail(keep):
    tamper(
        f"DELETE FROM tenancy_auditentry WHERE id IN (SELECT entry_id FROM tenancy_auditlink WHERE position > {keep})",
        f"DELETE FROM tenancy_auditlink WHERE position > {keep}",
    )


def rewrite(count):
    tamper("TRUNCATE tenancy_auditentry, tenancy_auditlink")
    add(count, {"rewritten": True})


def hide_the_bookmark():
    """Makes the bookmark agree with the chain as it stands, as an insider who knows of it would."""
    head = audit_head()
    AuditWatch.objects.update(position=head[0], hash=head[1], filed_position=0, swept_position=0, fault="")


def test_the_head_leaves_the_database_as_a_line_in_the_log_and_in_the_file(anchored, caplog):
    position, digest = audit_head()
    lines = [json.loads(line) for line in anchored.read_text().splitlines()]
    assert [line["position"] for line in lines] == [3, 6]
    assert lines[-1]["hash"] == digest.hex()
    assert lines[-1]["installation"] == "switchyard"
    assert anchored.stat().st_mode & 0o777 == 0o600
    add()
    with caplog.at_level(logging.INFO, logger="tenancy"):
        anchor_audit()
    position, digest = audit_head()
    assert f"position={position} hash={digest.hex()}" in caplog.text


def test_a_head_that_did_not_move_is_not_filed_again(anchored):
    before = anchored.read_text()
    anchor_audit()
    assert anchored.read_text() == before


def test_an_installation_without_entries_and_without_a_file_has_nothing_to_anchor(settings):
    settings.AUDIT_ANCHORS = ""
    assert found() == ""
    add()
    assert found() == ""
    assert audit_watch().position == 1


def test_a_tail_cut_behind_the_last_anchor_is_found(anchored):
    cut_the_tail(4)
    assert "position 6: the last check has it, but the chain ends at 4" in found()
    code, text = verdict()
    assert code == 1
    assert "position 6: anchored but absent; the chain ends at 4, its tail was cut" in text


def test_a_tail_cut_and_grown_again_is_found(anchored):
    cut_the_tail(4)
    add(5)
    assert "position 6: its hash differs from the one" in found()
    assert "the chain was rewritten" in verdict()[1]


def test_a_chain_rewritten_with_valid_hashes_is_found(anchored):
    rewrite(8)
    assert "the chain was rewritten" in found()
    assert verdict()[0] == 1


@pytest.mark.parametrize("tampered", [lambda: cut_the_tail(4), lambda: rewrite(8), lambda: rewrite(2)])
def test_an_insider_who_also_changes_the_bookmark_is_found_by_the_file(anchored, tampered):
    tampered()
    hide_the_bookmark()
    assert "the anchor file has" in found()
    assert verdict()[0] == 1


def test_a_database_rolled_back_to_an_older_backup_is_found(anchored):
    """Bookmark and chain go back together, so only what lies outside knows better."""
    kept = AuditWatch.objects.values().get()
    cut_the_tail(3)
    AuditWatch.objects.update(**{**kept, "position": 3, "hash": audit_head()[1], "filed_position": 3})
    fault = found()
    assert "the anchor file has it, but the chain ends at 3" in fault
    assert "the database is older" in fault


def test_a_deleted_or_emptied_anchor_file_is_found(anchored):
    anchored.unlink()
    assert "the anchor file is gone or empty; it contained positions up to 6" in found()
    anchored.write_text("")
    assert "gone or empty" in found()


def test_an_anchor_file_cut_short_is_found(anchored):
    first = anchored.read_text().splitlines()[0]
    anchored.write_text(first + "\n")
    assert "the anchor file ends at position 3; positions up to 6 were written to it" in found()


def test_lines_put_out_of_order_and_lines_that_are_none_are_found(anchored):
    one, two = anchored.read_text().splitlines()
    anchored.write_text(f"{two}\n{one}\nnonsense\n[]\n")
    code, text = verdict()
    assert code == 1
    assert "line 2" in text
    assert "out of order" in text
    assert "line 3" in text
    assert "line 4" in text
    assert "position 3" in found()


def test_with_file_and_bookmark_gone_only_a_copy_kept_elsewhere_tells(anchored, tmp_path):
    copy = tmp_path / "elsewhere.jsonl"
    copy.write_text(anchored.read_text())
    rewrite(6)
    hide_the_bookmark()
    anchored.unlink()
    assert found() == ""
    assert verdict()[0] == 0
    code, text = verdict("--anchors", str(copy))
    assert code == 1
    assert "position 3: the hash is not the anchored one" in text
    assert verdict("--anchors", str(tmp_path / "none"))[0] == 2


def test_an_old_entry_that_is_edited_is_found_in_time_by_bounded_looks(anchored, monkeypatch):
    monkeypatch.setattr(anchoring, "OLD_LINKS", 2)
    add(4)
    AuditWatch.objects.update(swept_position=0)
    assert found() == ""
    tamper(f"UPDATE tenancy_auditentry SET actor_name = 'somebody' WHERE id = {entry(8)}")
    AuditWatch.objects.update(position=10, hash=audit_head()[1])
    faults = [found() for _ in range(5)]
    assert any("position 8" in fault for fault in faults)
    assert "position 8" in faults[-1], "it stays told until somebody accepts it"


def test_one_run_reads_no_more_than_its_bounds(file, monkeypatch):
    monkeypatch.setattr(anchoring, "NEW_LINKS", 4)
    monkeypatch.setattr(anchoring, "OLD_LINKS", 2)
    add(10)
    reached = []
    for _ in range(4):
        anchor_audit()
        reached.append((audit_watch().position, audit_watch().swept_position))
    assert reached == [(4, 2), (8, 4), (10, 6), (10, 8)]
    anchor_audit()
    assert audit_watch().swept_position == 0


def test_a_link_taken_from_a_new_entry_is_found(anchored):
    add(2)
    tamper("DELETE FROM tenancy_auditlink WHERE position = 8")
    assert "it has no link" in found()


def test_nothing_is_anchored_over_a_fault_until_somebody_accepts_it_in_audited_words(anchored, caplog):
    before = anchored.read_text()
    tamper(f"UPDATE tenancy_auditentry SET actor_name = 'somebody' WHERE id = {entry(2)}")
    AuditWatch.objects.update(position=0, hash=bytes(32), swept_position=0)
    add()
    assert "position 2" in found()
    assert anchored.read_text() == before
    assert "the audit trail failed its check: position 2" in caplog.text
    accept_audit(SYSTEM, "restored from Sunday's backup")
    last = AuditEntry.objects.latest("id")
    assert last.action == "audit.accept"
    assert last.detail["reason"] == "restored from Sunday's backup"
    assert "position 2" in last.detail["fault"]
    assert audit_watch().fault == ""


def test_a_file_that_cannot_be_written_is_told_and_the_log_goes_on(file, settings, tmp_path, caplog):
    settings.AUDIT_ANCHORS = str(tmp_path)
    add()
    with caplog.at_level(logging.INFO, logger="tenancy"):
        assert "the anchor file cannot be read: Is a directory" in found()
    settings.AUDIT_ANCHORS = str(tmp_path / "no" / "such" / "folder")
    assert "the anchor file cannot be written" in found()
    assert "position=1" in caplog.text


def test_a_line_torn_by_a_crash_spoils_no_other(anchored):
    with anchored.open("a") as stream:
        stream.write('{"at": "2026-')
    add()
    assert found() == ""
    add()
    assert found() == ""
    assert json.loads(anchored.read_text().splitlines()[-1])["position"] == audit_head()[0]


def test_a_crash_between_file_and_bookmark_heals_itself(anchored):
    AuditWatch.objects.update(
        position=3, filed_position=3, hash=bytes.fromhex(json.loads(anchored.read_text().splitlines()[0])["hash"])
    )
    assert found() == ""
    assert audit_watch().filed_position == 6
    assert len(anchored.read_text().splitlines()) == 2


def test_the_metrics_tell_position_hash_and_fault(anchored, client):
    text = client.get("/metrics").content.decode()
    position, digest = audit_head()
    assert f"switchyard_audit_position {float(position)}" in text
    assert f'switchyard_audit_head_info{{hash="{digest.hex()}",position="{position}"}} 1.0' in text
    assert "switchyard_audit_faults 0.0" in text
    assert "switchyard_audit_checked_age_seconds" in text
    cut_the_tail(4)
    anchor_audit()
    assert "switchyard_audit_faults 1.0" in client.get("/metrics").content.decode()


def test_the_audit_page_warns_of_a_fault_and_says_when_the_trail_was_last_whole(anchored, client):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    assert "last verified" in client.get("/audit/").content.decode()
    cut_the_tail(2)
    anchor_audit()
    page = client.get("/audit/").content.decode()
    assert 'role="alert"' in page
    assert "failed its last check" in page


def test_there_is_one_bookmark():
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenancy_auditwatch (id, position, hash, filed_position, swept_position, fault)"
            " VALUES (2, 0, %s, 0, 0, '')", [bytes(32)],
        )  # fmt: skip
