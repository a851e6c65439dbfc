"""What must hold of the ledger when accountants have worked on it beside each other."""

from typing import TYPE_CHECKING

from billing.queries.periods import checksum_of

from .promises import judging

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World


@judging
def promise_16_each_entry_balances(world: "World") -> list[str]:
    """The lines of an entry add up to zero in each currency."""
    return [f"the entry {key} adds up to {total} {currency}" for key, currency, total in world.watch.rows(UNBALANCED)]


UNBALANCED = """
SELECT entry.key, line.currency, sum(line.amount) FROM billing_ledgerentry AS entry
  JOIN billing_ledgerline AS line ON line.entry_id = entry.id GROUP BY 1, 2 HAVING sum(line.amount) <> 0 ORDER BY 1, 2
"""


@judging
def promise_16_documents_are_numbered_without_gaps(world: "World") -> list[str]:
    """An organisation's documents of a kind have the numbers from 1 on, each once."""
    return [
        f"{count} documents of the kind {kind} have numbers up to {last}"
        for kind, count, last in world.watch.rows(NUMBERS)
    ]


NUMBERS = """
SELECT kind, count(*), max(sequence) FROM billing_invoice GROUP BY organisation_id, kind
HAVING count(*) <> max(sequence) OR count(DISTINCT sequence) <> count(*) ORDER BY 1
"""


@judging
def promise_16_nothing_is_credited_twice(world: "World") -> list[str]:
    """Credit notes take back at most what a line charged."""
    return [
        f"{number} has a line of {amount} of which {back} is credited"
        for number, amount, back in world.watch.rows(CREDITED)
    ]


CREDITED = """
SELECT invoice.number, line.amount, -sum(credit.amount) FROM billing_invoiceline AS line
  JOIN billing_invoice AS invoice ON invoice.id = line.invoice_id
  JOIN billing_invoiceline AS credit ON credit.credits_id = line.id
 GROUP BY line.id, invoice.number, line.amount HAVING -sum(credit.amount) > greatest(line.amount, 0) ORDER BY 1
"""


@judging
def promise_16_one_month_is_invoiced_once(world: "World") -> list[str]:
    """A tenant's month has at most one invoice in each currency that is not credited in full."""
    return [f"{path} has {count} invoices in {currency}" for path, currency, count in world.watch.rows(INVOICED_TWICE)]


INVOICED_TWICE = """
SELECT invoice.tenant_path, invoice.currency, count(*) FROM billing_invoice AS invoice
 WHERE invoice.kind = 'invoice' AND invoice.subtotal + coalesce(
       (SELECT sum(note.subtotal) FROM billing_invoice AS note WHERE note.reference_id = invoice.id), 0) <> 0
 GROUP BY 1, 2, invoice.period_id HAVING count(*) > 1 ORDER BY 1
"""


@judging
def promise_16_two_people_decide(world: "World") -> list[str]:
    """Another person approves a reopening than the one who asked, and accepts a dispute than the one who opened it."""
    return [f"{what} {id_} was asked for and decided by one person" for what, id_ in world.watch.rows(ALONE)]


ALONE = """
SELECT 'the reopening', id::text FROM billing_periodreopening WHERE approved_by_id = requested_by_id
 UNION ALL
SELECT 'the dispute', id::text FROM billing_invoiceremark
 WHERE kind = 'dispute' AND outcome = 'accepted' AND resolved_by_id = opened_by_id
 ORDER BY 1, 2
"""


@judging
def promise_16_a_closed_month_stays_as_it_was(world: "World") -> list[str]:
    """The checksum that was written when a month closed is that of its entries now."""
    return [
        f"the month {month} was closed with other entries than it has"
        for id_, month, checksum in world.watch.rows(CLOSED)
        if checksum_of(id_) != checksum
    ]


CLOSED = "SELECT id, month, checksum FROM billing_ledgerperiod WHERE state = 'closed' ORDER BY id"


@judging
def promise_16_of_two_contents_under_one_key_one_counts(world: "World") -> list[str]:
    """The offered content has taken the place of the posted one exactly if a person decided that; the posted one is then
    reversed, once. Days of usage are reversed by corrections only, and no content takes their place.
    """
    return [
        f"the key {key} has {offered} decisions for another content, {placed} such entries and {reversed_} reversals"
        for key, offered, placed, reversed_ in world.watch.rows(CONTENTS)
        if not offered == placed == reversed_ or offered > 1
    ]


CONTENTS = """
SELECT conflict.key, count(*) FILTER (WHERE conflict.decision = 'offered'), count(placed.id),
       (SELECT count(*) FROM billing_ledgerentry AS back JOIN billing_ledgerentry AS posted ON posted.id = back.reverses_id
         WHERE posted.key = conflict.key AND posted.kind = 'adjustment')
  FROM billing_postingconflict AS conflict
  LEFT JOIN billing_ledgerentry AS placed ON placed.key = 'resolved/' || conflict.id::text
 GROUP BY conflict.key ORDER BY 1
"""
