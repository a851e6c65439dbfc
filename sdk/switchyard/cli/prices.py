"""Commands about the price book as a file."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .session import REFUSED, say, session_of
from .text import money

prices = typer.Typer(no_args_is_help=True, help="Export, plan and apply the price book as a YAML file.")
File = Annotated[str, typer.Argument(help="The file; `-`: standard input.", show_default=False)]
Prune = Annotated[bool, typer.Option(help="Also end prices of the file's clusters that the file does not have.")]
WHICH = ("owner", "cluster", "flavor", "capacity_type")
AMOUNTS = ("unit_price", "cpu_price", "memory_price", "interruptions_per_hour")


@prices.command()
def export(
    context: typer.Context,
    cluster: Annotated[str | None, typer.Option(help="Only of this cluster.", show_default=False)] = None,
) -> None:
    """Print the present prices as a file."""
    with session_of(context).client() as client:
        typer.echo(client.get("price-book", cluster=cluster)["file"], nl=False)


@prices.command()
def plan(context: typer.Context, file: File, prune: Prune = False) -> None:
    """Show what a file would change, and what it would have done last month."""
    session = session_of(context)
    with session.client() as client:
        found = client.post("price-book/plan", {"file": _text(file), "prune": prune})
    _show(session, found)
    if not found["can_apply"]:
        raise typer.Exit(REFUSED)


@prices.command()
def apply(
    context: typer.Context,
    file: File,
    prune: Prune = False,
    expect: Annotated[
        str | None, typer.Option(metavar="HASH", help="Apply only this plan.", show_default=False)
    ] = None,
) -> None:
    """Make prices those of a file: all changes or none."""
    session = session_of(context)
    with session.client() as client:
        found = client.post("price-book/apply", {"file": _text(file), "prune": prune, "expect": expect})
    _show(session, found)


def _show(session: Any, found: dict[str, Any]) -> None:
    rows = [
        [
            one["action"],
            " ".join(one[name] for name in WHICH if one[name]),
            one["from"],
            _price(one["before"]),
            _price(one["after"]),
            _note(one),
        ]
        for one in found["changes"]
    ]
    columns = ["CHANGE", "PRICE OF", "FROM", "BEFORE", "AFTER", "NOTE"]
    session.show(found, columns, rows, if_none="Nothing changes.")
    for effect in found["effects"] or ():
        say(f"{found['month']}, {effect['tenant']}: {money(effect['old'])} before, {money(effect['new'])} after")
    say(f"Plan {found['hash']}")


def _price(one: dict[str, Any] | None) -> str:
    if one is None:
        return "none"
    amounts = "/".join(one[name] for name in AMOUNTS if one[name] is not None)
    return f"{amounts} {one['currency']}" + (f" until {one['until']}" if one["until"] else "")


def _note(one: dict[str, Any]) -> str:
    if one["refusal"]:
        place = f"line {one['line']}, column {one['column']}: " if one["line"] else ""
        return f"{place}{one['refusal']['code']}: {one['refusal']['detail']}"
    return f"corrects usage until {one['corrected_until']}" if one["corrected_until"] else ""


def _text(name: str) -> str:
    """The text of a file, or of the standard input for `-`."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{name}: {error}") from error
