"""`manage.py bootstrap`: creates the first organisation and its admin."""

import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from foundation.commands import GatewayCommand
from foundation.plain_json import instant
from foundation.problems import Problem
from tenancy.management.expiry import add_expiry, expiry_of
from tenancy.operations import bootstrap
from tenancy.web.links import link_to, own_address

OPTIONS = {"name": "--organisation"}
"""The option of a field."""


class Command(GatewayCommand):
    help = (
        "Creates an organisation and its first admin, who is also an operator of this installation. Prints one JSON object. "
        "The first run includes a token's secret and, unless a password was given, a one-time link to set one. Running it "
        "again changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organisation", required=True, metavar="NAME", help="lower-case letters, digits, hyphens")
        parser.add_argument("--admin", required=True, metavar="EMAIL")
        parser.add_argument("--new-token", action="store_true", help="create another token")
        add_expiry(parser)
        parser.add_argument("--new-link", action="store_true", help="create another one-time link to set a password")
        parser.add_argument("--address", default=own_address(), help="the gateway's address, for the link")
        parser.add_argument(
            "--password-stdin", action="store_true", help="read the admin's password from standard input"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        password = sys.stdin.readline().rstrip("\r\n") if options["password_stdin"] else None
        try:
            done = bootstrap(
                options["organisation"],
                options["admin"],
                password=password,
                wants_token=options["new_token"],
                token_expires_at=expiry_of(options["expires"]),
                wants_link=options["new_link"],
            )
        except Problem as problem:
            said = "; ".join(f"{OPTIONS.get(e.field, e.field)}: {e.detail}" for e in problem.errors)
            raise CommandError(said or problem.detail) from None
        answer: dict[str, str | None] = {
            "organisation": done.organisation.path,
            "organisation_id": str(done.organisation.id),
            "user": done.user.email,
            "user_id": str(done.user.id),
        }
        if done.secret:
            answer |= {"token": done.secret, "token_expires_at": instant(done.secret_expires_at)}
        if done.link:
            answer["link"] = link_to(options["address"], done.link)
        self.stdout.write(json.dumps(answer))
