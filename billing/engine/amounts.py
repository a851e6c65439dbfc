"""Amounts as programs read them."""

from decimal import Decimal


def decimal_text(amount: Decimal) -> str:
    """Exact, with at least two and at most twelve decimals."""
    text = f"{amount:.12f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"{whole}.{part:0<2}"
