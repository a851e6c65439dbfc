"""Files of what providers billed: every fault is named with its line and column, and nothing of a wrong file is read."""

from datetime import date
from decimal import Decimal

import pytest

from billing.engine.provider_invoices import (
    MOST_CHARACTERS,
    MOST_ROWS,
    BilledLine,
    NotProviderInvoices,
    read_provider_invoices,
)

HEAD = "cluster,month,reference,amount,currency\n"
OCTOBER = date(2026, 10, 1)


def test_lines_are_read_exactly_in_their_order():
    text = (
        '\ufeffcluster,month,reference,amount,currency,note\r\nnorth, 2026-10 ,INV-1,1860.000000000001,USD,"GPUs, reserved"\r\n'
        "\r\nnorth,2026-10,INV-2,-12.5,USD,\r\nsouth,2026-10,INV-1,7,EUR,x\r\n"
    )
    assert read_provider_invoices(text) == (
        BilledLine("north", OCTOBER, "INV-1", Decimal("1860.000000000001"), "USD", "GPUs, reserved"),
        BilledLine("north", OCTOBER, "INV-2", Decimal("-12.5"), "USD"),
        BilledLine("south", OCTOBER, "INV-1", Decimal(7), "EUR", "x"),
    )


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("north,2026-13,A,1,USD", "line 3, column month"),
        ("north,1999-12,A,1,USD", "line 3, column month"),
        ("north,2200-01,A,1,USD", "line 3, column month"),
        ("north,2026-10-01,A,1,USD", "line 3, column month"),
        ("north,\uff12026-10,A,1,USD", "line 3, column month"),
        ("north,2026-10,A,0,USD", "line 3, column amount"),
        ("north,2026-10,A,-0.00,USD", "line 3, column amount"),
        ("north,2026-10,A,1e3,USD", "line 3, column amount"),
        ("north,2026-10,A,NaN,USD", "line 3, column amount"),
        ("north,2026-10,A,Infinity,USD", "line 3, column amount"),
        ("north,2026-10,A,1_0,USD", "line 3, column amount"),
        ("north,2026-10,A,=1+1,USD", "line 3, column amount"),
        ("north,2026-10,A,1.0000000000001,USD", "line 3, column amount"),
        ("north,2026-10,A,1000000000000000,USD", "line 3, column amount"),
        ('north,2026-10,A,"1,5",USD', "line 3, column amount"),
        ("north,2026-10,A,1,usd", "line 3, column currency"),
        ("north,2026-10,A,1,XAU", "line 3, column currency"),
        ("north,2026-10,A,1,", "line 3, column currency"),
        ("north,2026-10,,1,USD", "line 3, column reference"),
        (f"north,2026-10,{'r' * 121},1,USD", "line 3, column reference"),
        ("north,2026-10,a\x00b,1,USD", "line 3"),
        ('north,2026-10,"a\nb",1,USD', "line 4, column reference"),
        ("north,2026-10,a\u202eb,1,USD", "line 3, column reference"),
        (f"{'n' * 64},2026-10,A,1,USD", "line 3, column cluster"),
        ("north,2026-10,A,1", "line 3: it has 4 columns"),
        ("north,2026-10,A,1,USD,note", "line 3: it has 6 columns"),
        ('north,2026-10,"A,1,USD', "line 3"),
        ("north,2026-10,first,2,USD", "line 3, column reference: 'first' is there twice"),
    ],
)
def test_a_fault_is_named_with_its_line_and_column(row, where):
    with pytest.raises(NotProviderInvoices) as refused:
        read_provider_invoices(f"{HEAD}north,2026-10,first,1,USD\n{row}\n")
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "line 1"),
        ("cluster,month,reference,amount\n", "line 1"),
        ("month,cluster,reference,amount,currency\n", "line 1"),
        (HEAD, "line 2"),
        (HEAD + "x" * MOST_CHARACTERS, "characters"),
        (HEAD + "".join(f"n,2026-10,{number},1,USD\n" for number in range(MOST_ROWS + 1)), "line 10002"),
    ],
)
def test_a_file_that_is_none_is_refused(text, where):
    with pytest.raises(NotProviderInvoices) as refused:
        read_provider_invoices(text)
    assert where in str(refused.value)


def test_as_many_lines_as_a_file_may_have_are_read():
    text = HEAD + "".join(f"n,2026-10,{number},1,USD\n" for number in range(MOST_ROWS))
    assert len(read_provider_invoices(text)) == MOST_ROWS


def test_a_formula_is_a_reference_like_any_other():
    """It is made inert where it is written for spreadsheets."""
    (line,) = read_provider_invoices(f"{HEAD}north,2026-10,=HYPERLINK(1),1,USD\n")
    assert line.reference == "=HYPERLINK(1)"


@pytest.mark.parametrize("month", [date(2000, 1, 1), date(2199, 12, 1)])
def test_a_line_goes_as_far_as_its_limits(month):
    cells = ("n" * 63, f"{month:%Y-%m}", "r" * 120, f"-{'9' * 15}.{'9' * 12}", "USD")
    head = HEAD.replace("currency", "currency,note")
    (line,) = read_provider_invoices(f"{head}{','.join(cells)},{'t' * 500}\n")
    assert line == BilledLine(cells[0], month, cells[2], Decimal(cells[3]), "USD", "t" * 500)
    with pytest.raises(NotProviderInvoices, match="line 2, column note"):
        read_provider_invoices(f"{head}{','.join(cells)},{'t' * 501}\n")
