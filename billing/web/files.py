"""The page of files for finance tools: a month's datasets, and what state the month is in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.focus import VERSIONS
from billing.engine.focus_datasets import datasets_of
from billing.queries.focus_ledger import accounts_in, documents_in
from foundation.pages import Form, asked, show
from tenancy.queries import Actor, path_suggestions
from tenancy.web import page

from .usage import month_of, months_offered

ABOUT = {
    "cost-and-usage": ("Cost and Usage", "Each job, flavor, price and day, and the other entries of the month"),
    "billing-period": ("Billing Period", "Whether the month is open or closed"),
    "invoice-detail": ("Invoice Detail", "The lines and taxes of invoices and credit notes"),
    "contract-commitment": ("Contract Commitment", "What was paid in advance, and for which term"),
}

TABLES = (("csv", "for any tool"), ("xlsx", "for spreadsheets"))


@dataclass(frozen=True, slots=True)
class FileShown:
    """A file that can be downloaded, with the query that gets it and, of a dataset, the one of its schema."""

    title: str
    detail: str
    version: str
    query: str
    schema_query: str


@dataclass(frozen=True, slots=True)
class MonthShown:
    """The state of an organisation's month, with the documents in it if the reader sees all of the organisation."""

    organisation: str
    state: str
    documents: str
    journal: str
    """The query that gets its journal; empty for readers of a part of the organisation."""


@dataclass(frozen=True, slots=True)
class FilesPage:
    month: str
    files: tuple[FileShown, ...]
    tables: tuple[tuple[str, str, str], ...]
    states: tuple[MonthShown, ...]
    form: Form
    months: Sequence[tuple[str, str]]
    tenants: Sequence[tuple[str, str]]


@page(takes=("month", "tenant"))
def files(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The files of a month; by default of the current one, of everything that the reader sees."""
    year, number = month_of(request.GET.get("month", ""))
    month, tenant = date(year, number, 1), asked(request).get("tenant", "").strip("/ ")
    accounts = accounts_in(actor, tenant, month)
    states = tuple(
        MonthShown(
            one.organisation.path, one.period.state if one.period else "open",
            ", ".join(document.number for document in documents_in([one], month)),
            _words(organisation=one.organisation.path, month=f"{month:%Y-%m}") if one.is_whole else "",
        )
        for one in accounts
    )  # fmt: skip
    shown = FilesPage(
        month=f"{month:%B %Y}",
        files=tuple(
            FileShown(
                *ABOUT[dataset], version, _query(month, tenant, dataset=dataset, version=version),
                _words(dataset=dataset, version=version),
            )
            for version in VERSIONS
            for dataset in datasets_of(version)
        ),
        tables=tuple((kind.upper(), what, _query(month, tenant, format=kind)) for kind, what in TABLES),
        states=states,
        form=Form(values={"month": f"{month:%Y-%m}", "tenant": tenant}),
        months=months_offered(),
        tenants=path_suggestions(actor),
    )  # fmt: skip
    return show(request, "billing/files.html", shown)


def _query(month: date, tenant: str, **more: str) -> str:
    return _words(month=f"{month:%Y-%m}", **({"tenant": tenant} if tenant else {}), **more)


def _words(**values: str) -> str:
    query = QueryDict(mutable=True)
    query.update(values)
    return query.urlencode()
