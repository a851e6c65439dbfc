"""Who uses which gateway."""

import sys
from typing import Annotated

import typer

from switchyard import profiles
from switchyard.client import Client, checked_address, checked_token

from .session import say, session_of
from .text import local


def login(
    context: typer.Context,
    address: Annotated[str, typer.Argument(help="Such as https://switchyard.example.com.", show_default=False)],
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from the standard input instead of asking for it.")
    ] = False,
    ca_file: Annotated[
        str | None,
        typer.Option(help="PEM file of the authorities to trust instead of the system's.", show_default=False),
    ] = None,
) -> None:
    """Store an address and an API token, which the page *API tokens* makes. Other commands then use them.

    In a pipeline, set SWITCHYARD and SWITCHYARD_TOKEN (or SWITCHYARD_TOKEN_FILE) instead.
    """
    address = checked_address(address)
    token = sys.stdin.read() if token_stdin else typer.prompt("API token", hide_input=True)
    found = profiles.Access(address, checked_token(token), ca_file)
    with Client(found.address, found.token, ca_file=ca_file, patience=10) as client:
        me = client.get("me")
    path = profiles.store(session_of(context).profile, found)
    say(f"You are {me['user']['email']} at {address}. The token is stored in {path}, which only you can read.")


def logout(context: typer.Context) -> None:
    """Forget the stored address and token. The token itself stays valid: revoke it on the page *API tokens*."""
    was_there = profiles.forget(session_of(context).profile)
    say("The address and the token are forgotten." if was_there else "No login was stored.")


def whoami(context: typer.Context) -> None:
    """Show whose token is in use, its end, and your roles."""
    session = session_of(context)
    with session.client() as client:
        me = client.get("me")
        token = me.get("token") or {}
        roles = [f"{one['role']} at {one['tenant']}" for one in me["roles"]]
        fields = {
            "gateway": client.address,
            "user": me["user"]["email"],
            "roles": ", ".join(roles),
            "token": token.get("name"),
            "scopes": ", ".join(token.get("scopes") or []),
            "expires": local(token.get("expires_at")),
        }
        session.show_fields(me, fields)
