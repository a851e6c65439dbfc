"""Reports as JSON, or as CSV for spreadsheets: UTF-8, a header row, decimals as written, and no cell that a spreadsheet would
run as a formula.
"""

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from foundation.media import JSONRenderer
from foundation.plain_json import encode
from foundation.problems import Invalid

FORMATS = ("json", "csv")
DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBERS = (
    "gpu_milliseconds",
    "gpu_hours",
    "cpu_millicore_milliseconds",
    "cpu_core_hours",
    "memory_gib_hours",
    "unpriced_gpu_hours",
    "unpriced_gpu_milliseconds",
    "unpriced_cpu_millicore_milliseconds",
    "unpriced_memory_gib_hours",
    "lost_gpu_hours",
)
SO_FAR = (
    "provisional_gpu_hours",
    "provisional_gpu_milliseconds",
    "provisional_cpu_millicore_milliseconds",
    "provisional_memory_gib_hours",
    "provisional_cost",
    "running_jobs",
)
"""The columns that mark what is not final, and why. Every line has them, because users sort and split sheets without
the header.
"""


def inert(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet could take it for a formula (OWASP ASVS 1.2.10)."""
    return f"'{text}" if text.startswith(DANGEROUS) else text


def usage_csv(report: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    """The items of a report as CSV: the key columns, the quantities, the cost and its currency, the part that comes
    from running jobs, the parts that corrections of prices and credits made, and energy and emissions if the report has
    them. There is no row of totals.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    carbon = tuple(report["totals_by_currency"][0].get("carbon", ()))
    beside_names = [f"carbon_{name}" if name == "basis" else name for name in carbon]
    writer.writerow([*columns, *NUMBERS, "cost", "currency", *SO_FAR, "corrections", "credits", *beside_names])
    for item in report["items"]:
        keys = [inert(str(item[name])) for name in columns]
        numbers = [str(item[name]) for name in NUMBERS]
        cost, provisional = item["cost"], item["provisional_cost"]["amount"]
        so_far = [str(provisional if name == "provisional_cost" else item[name]) for name in SO_FAR]
        beside = [item[name]["amount"] for name in ("corrections", "credits")]
        beside += [item["carbon"][name] for name in carbon]
        writer.writerow([*keys, *numbers, cost["amount"], cost["currency"], *so_far, *beside])
    return text.getvalue()


class CSVRenderer(BaseRenderer):
    """Sends the CSV text that the view returns; a refusal remains JSON."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return data.encode() if isinstance(data, str) else encode(data)


def wanted_format(request: Request, query: Mapping[str, str]) -> str:
    """One of FORMATS: what `format` names, else what the caller accepts. Raises Invalid `unknown_format`."""
    wanted = query.get("format", request.accepted_renderer.format)
    if wanted not in FORMATS:
        raise Invalid.field("format", "unknown_format", f"one of {', '.join(FORMATS)}")
    return wanted


def respond(request: Request, wanted: str, shown: Callable[[], object], text: Callable[[], str], file: str) -> Response:
    """The report in the format that was asked for; as CSV, in a file of this name."""
    renderer = JSONRenderer if wanted == "json" else CSVRenderer
    request.accepted_renderer, request.accepted_media_type = renderer(), renderer.media_type
    if wanted == "json":
        return Response(shown())
    return Response(text(), headers={"Content-Disposition": f'attachment; filename="{file}"'})
