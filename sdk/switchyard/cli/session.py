"""What all commands share: the gateway they talk to, and how they print."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from switchyard.client import Client
from switchyard.profiles import access

from .text import clean

REFUSED = 125
"""The exit status if the gateway refused or did not answer, as `docker run` has one for its daemon."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


@dataclass(slots=True)
class Session:
    """The options before the command."""

    profile: str
    output: Output

    def client(self) -> Client:
        found = access(self.profile)
        return Client(found.address, found.token, ca_file=found.ca_file)

    def show(self, answer: Any, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, if_none: str) -> None:
        """Prints the API's answer as JSON, or these rows; or the message `if_none` without rows."""
        if self.output is Output.JSON:
            print_json(answer)
        elif rows:
            print_table(columns, rows)
        else:
            say(if_none)

    def show_fields(self, answer: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        """Prints the API's answer as JSON, or these fields that have a value, each on its line."""
        if self.output is Output.JSON:
            print_json(answer)
            return
        shown = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            typer.echo(f"{name:<{width}}  {clean(value)}")


def session_of(context: typer.Context) -> Session:
    """The session that the options before the command made."""
    found = context.find_object(Session)
    assert found is not None
    return found


def print_json(answer: Any) -> None:
    """On the standard output; control characters are escaped."""
    typer.echo(json.dumps(answer, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns, the last one as long as it is."""
    cells = [list(columns), *([clean("–" if cell in (None, "") else cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns) - 1)]
    for row in cells:
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        typer.echo("  ".join([*padded, row[-1]]).rstrip())


def say(text: str) -> None:
    """Prints a message for people, which is no part of the command's output."""
    print(clean(text), file=sys.stderr, flush=True)  # noqa: T201 - this is a program for terminals


Job = Annotated[
    str, typer.Argument(help="The job's id, as `switchyard submit` and `switchyard jobs` print it.", show_default=False)
]
Tenant = Annotated[
    str | None, typer.Option("--tenant", "-t", help="Path of a tenant, such as acme/research.", show_default=False)
]
