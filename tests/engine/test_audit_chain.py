"""What the audit trail's hash chain shows of entries that were edited, deleted, moved or cut off."""

import hashlib
from dataclasses import replace

from tenancy.engine.chain import BEGINNING, Anchor, LinkSeen, faults_in, judge_anchor, text_of


def chain(*entries):
    """Links of these entries, each a tuple of columns; the entry's id is ten times its position."""
    links, head = [], bytes(32)
    for position, columns in enumerate(entries, start=1):
        head = hashlib.sha256(head + text_of(columns)).digest()
        links.append(LinkSeen(position, head, 10 * position, columns))
    return links


LINKS = chain(("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))


def test_a_text_tells_its_columns_apart():
    assert text_of(["ab", "ü", ""]) == "2:ab,2:ü,0:".encode()
    assert text_of(["a", "b"]) != text_of(["a,1:b"])


def test_a_whole_chain_has_no_fault():
    assert (BEGINNING.position, BEGINNING.hash) == (0, bytes(32))
    anchors = [Anchor(link.position, link.hash) for link in LINKS]
    assert not [*faults_in(LINKS), *faults_in([]), *faults_in(LINKS, anchors)]
    assert not list(faults_in(LINKS[2:], anchors, after=anchors[1])), "anchors before the part are not awaited"


def test_each_fault_is_reported_once_with_its_position():
    edited = [LINKS[0], replace(LINKS[1], columns=("b", "9")), *LINKS[2:]]
    assert list(faults_in(edited)) == ["position 2: entry 20 was edited or is out of order; it does not match its hash"]
    gone = [LINKS[0], replace(LINKS[1], columns=None), *LINKS[2:]]
    assert list(faults_in(gone)) == ["position 2: entry 20 was deleted"]
    assert list(faults_in([LINKS[0], *LINKS[2:]])) == ["position 2: 1 link was deleted"]
    assert list(faults_in([LINKS[0], LINKS[3]])) == ["position 2: 2 links were deleted"]
    [broken] = faults_in(LINKS[1:], after=replace(BEGINNING, position=1))
    assert broken.startswith("position 2: entry 20 was edited")


def test_an_anchor_shows_a_chain_that_was_rewritten_or_cut():
    first, third, last = (Anchor(n, LINKS[n - 1].hash) for n in (1, 3, 4))
    other = chain(("a", "1"), ("x", "2"), ("c", "3"), ("d", "4"))
    assert list(faults_in(other, [first, third, last])) == [
        f"position {n}: the hash is not the anchored one; the chain was rewritten" for n in (3, 4)
    ]
    assert list(faults_in(LINKS[:2], [first, third, last])) == [
        "position 4: anchored but absent; the chain ends at 2, its tail was cut"
    ]
    missing = [*LINKS[:2], LINKS[3]]
    assert list(faults_in(missing, [third])) == ["position 3: 1 link was deleted"]


def test_an_anchor_kept_elsewhere_is_judged_against_the_link_there():
    anchor = Anchor(3, LINKS[2].hash)
    assert not list(judge_anchor(anchor, anchor.hash, 3, "s3"))
    assert list(judge_anchor(anchor, None, 3, "s3")) == ["position 3: s3 has it, but its link is gone"]
    assert list(judge_anchor(anchor, bytes(32), 9, "s3")) == [
        "position 3: its hash differs from the one that s3 has; the chain was rewritten"
    ]
    (cut,) = judge_anchor(anchor, None, 2, "s3")
    assert cut.startswith("position 3: s3 has it, but the chain ends at 2; its tail was cut")
