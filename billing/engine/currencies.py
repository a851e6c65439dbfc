"""The minor units of currencies (ISO 4217), in which invoices are rounded."""

USUAL_DIGITS = 2
DIGITS = {
    **dict.fromkeys(
        ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
        0,
    ),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
}  # fmt: skip
"""The currencies whose minor unit is not a hundredth."""


def minor_digits(currency: str) -> int:
    """Decimal places of an amount on an invoice.

    >>> [minor_digits(code) for code in ("USD", "JPY", "KWD")]
    [2, 0, 3]
    """
    return DIGITS.get(currency, USUAL_DIGITS)
