"""`manage.py add_user`: adds a user, with roles."""

import json
import sys
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from foundation.commands import GatewayCommand
from foundation.plain_json import instant
from foundation.problems import Problem
from tenancy.engine.roles import Role, Scope
from tenancy.management.expiry import add_expiry, expiry_of
from tenancy.models import User
from tenancy.operations import ensure_user, give_role, give_token, make_link
from tenancy.queries import SYSTEM, tenant_by_path
from tenancy.web.links import link_to, own_address


class Command(GatewayCommand):
    help = (
        "Creates a user unless one with this email exists, binds roles, and prints one JSON object. Safe to run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--display-name", default="")
        parser.add_argument(
            "--role",
            action="append",
            default=[],
            metavar="ROLE@PATH",
            help="such as submitter@acme/research; repeatable",
        )
        parser.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
        parser.add_argument("--new-link", action="store_true", help="create a one-time link to set a password")
        parser.add_argument("--address", default=own_address(), help="the gateway's address, for the link")
        parser.add_argument("--new-token", action="store_true", help="create a token and print its secret")
        parser.add_argument("--scope", action="append", default=[], choices=[scope.value for scope in Scope])
        add_expiry(parser, "with --new-token: ")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["expires"] is not None and not options["new_token"]:
            raise CommandError("--expires needs --new-token", returncode=2)
        password = sys.stdin.readline().rstrip("\r\n") if options["password_stdin"] else None
        try:
            user = ensure_user(options["email"], display_name=options["display_name"], password=password)
            for word in options["role"]:
                role, _, path = word.partition("@")
                if role not in set(Role):
                    raise CommandError(f"--role {word}: the role is one of {', '.join(Role)}")
                give_role(user, tenant_by_path(SYSTEM, path), Role(role))
        except Problem as problem:
            raise CommandError("; ".join(f"{e.field}: {e.detail}" for e in problem.errors) or problem.detail) from None
        answer: dict[str, Any] = {"user": user.email, "user_id": str(user.id)}
        if options["new_token"]:
            answer |= _new_token(user, options["scope"], expiry_of(options["expires"]))
        if options["new_link"]:
            answer["link"] = link_to(options["address"], make_link(SYSTEM, user.id)[1])
        self.stdout.write(json.dumps(answer))


def _new_token(user: User, scopes: list[str], expires_at: datetime | None) -> dict[str, Any]:
    """What the answer says of a new token: its secret and when it expires."""
    secret = give_token(user, "console", *(Scope(word) for word in scopes), expires_at=expires_at)
    return {"token": secret, "token_expires_at": instant(expires_at)}
