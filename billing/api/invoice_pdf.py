"""An issued document as PDF. It depends on the stored document only, so the same document gives the same bytes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fpdf import FPDF
from fpdf.enums import TableBordersLayout, XPos, YPos
from fpdf.fonts import FontFace

FONT = "Helvetica"
TITLES = {"invoice": "Invoice", "statement": "Statement", "credit_note": "Credit note"}
WIDTHS = (8, 50, 42, 18, 24, 22, 26)
HEADINGS = ("No.", "Tenant", "Cluster and flavor", "Month", "Quantity", "Unit price", "Amount")
ALIGNED = ("RIGHT", "LEFT", "LEFT", "LEFT", "RIGHT", "RIGHT", "RIGHT")
UNITS = {"gpu": "GPU-hours", "core": "core-hours"}


class _Page(FPDF):  # type: ignore[misc]  # it has no types
    """A4 pages with the document's number and the page's at the foot."""

    def __init__(self, number: str) -> None:
        super().__init__()
        self.alias_nb_pages("")  # so that no text of a document is replaced by the number of pages
        self._number = number

    def footer(self) -> None:
        """The last line of each page."""
        self.set_y(-14)
        self.set_font(FONT, size=8)
        self.cell(0, 5, f"{self._number}, page {self.page_no()}", align="R")


def pdf_of(content: Mapping[str, Any], digest: str) -> bytes:
    """The PDF of a document. Characters that are not in Latin-1 become `?`: the JSON document is the original."""
    issued_at = datetime.fromisoformat(content["issued_at"])
    number, title = content["number"], TITLES[content["kind"]]
    page = _Page(number)
    page.set_creation_date(issued_at)
    page.set_title(f"{title} {number}")
    page.set_auto_page_break(auto=True, margin=20)
    page.add_page()
    page.set_font(FONT, "B", 18)
    page.cell(0, 10, f"{title} {number}", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    _facts(page, content)
    _lines(page, content["lines"])
    _sums(page, content)
    for text in (content["reason"], content["remark"]):
        if text:
            page.ln(4)
            page.multi_cell(0, 5, _plain(text), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    page.ln(4)
    page.set_font(FONT, size=7)
    page.multi_cell(0, 4, f"SHA-256 of the document: {digest}\nChecksum of the month: {content['checksum']}")
    return bytes(page.output())


def _facts(page: FPDF, content: Mapping[str, Any]) -> None:
    facts = (
        ("Issued by", content["issuer"]),
        ("For", content["tenant"]),
        ("Month", content["month"]),
        ("Issued", content["issued_at"][:10]),
        ("Payable until", content["due_on"]),
        ("Credit for", content["reference"]),
        ("Cost centre", content["cost_centre"]),
        ("GL account", content["gl_account"]),
    )
    for name, value in facts:
        if value:
            page.set_font(FONT, "B", 9)
            page.cell(30, 5, name)
            page.set_font(FONT, size=9)
            page.multi_cell(0, 5, _plain(value), new_x=XPos.LMARGIN, new_y=YPos.NEXT)
    page.ln(4)


def _lines(page: FPDF, lines: Sequence[Mapping[str, Any]]) -> None:
    page.set_font(FONT, size=8)
    with page.table(
        col_widths=WIDTHS,
        text_align=ALIGNED,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
        headings_style=FontFace(emphasis="BOLD"),
        line_height=4.5,
    ) as table:
        table.row(HEADINGS)
        for line in lines:
            table.row(_cells(line))


def _cells(line: Mapping[str, Any]) -> tuple[str, ...]:
    sku = f"{line['cluster']}, {line['flavor']}" if line["flavor"] else "Adjustment"
    if line["kind"] == "correction":
        sku += " (correction)"
    if line.get("credits"):
        sku += f" (credit of line {line['credits']})"
    quantity = f"{line['quantity']} {UNITS.get(line['unit'], '')}" if line.get("quantity") else ""
    return (
        str(line["number"]), _plain(line["tenant"]), _plain(sku), line["month"], quantity, line.get("unit_price") or "",
        line["amount"],
    )  # fmt: skip


def _sums(page: FPDF, content: Mapping[str, Any]) -> None:
    tax = content["tax"]
    rows = [("Subtotal", content["subtotal"])]
    if tax["rate"]:
        rows.append((_plain(f"{tax['name'] or 'Tax'} {tax['rate']} %"), tax["amount"]))
    rows.append(("Total", content["total"]))
    page.ln(2)
    for name, amount in rows:
        page.set_font(FONT, "B" if name == "Total" else "", 9)
        page.cell(150, 5, name, align="R")
        page.cell(0, 5, f"{amount} {content['currency']}", align="R", new_x=XPos.LMARGIN, new_y=YPos.NEXT)


def _plain(text: str) -> str:
    return text.encode("latin-1", "replace").decode("latin-1")
