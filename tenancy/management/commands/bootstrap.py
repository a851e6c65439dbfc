"""`manage.py bootstrap`: the first organisation and its admin."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from foundation.problems import Problem
from tenancy.operations import bootstrap
from tenancy.web.links import link_to, own_address


class Command(BaseCommand):
    help = (
        "Makes an organisation and its first admin, who is also an operator of this installation. Prints one JSON object; "
        "the first time it holds a token's secret, and the one-time link with which the admin sets a password unless one "
        "was given. Run again, it changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--organisation", required=True, metavar="NAME", help="lower-case letters, digits, hyphens")
        parser.add_argument("--admin", required=True, metavar="EMAIL")
        parser.add_argument("--new-token", action="store_true", help="make another token")
        parser.add_argument("--new-link", action="store_true", help="make another one-time link to set a password")
        parser.add_argument("--address", default=own_address(), help="of the gateway, for the link")
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
                wants_link=options["new_link"],
            )
        except Problem as problem:
            raise CommandError("; ".join(f"{e.field}: {e.detail}" for e in problem.errors) or problem.detail) from None
        except IntegrityError as error:
            if "tenant_name_is_a_dns_label" in str(error):
                raise CommandError(
                    "--organisation takes lower-case letters, digits and inner hyphens, at most 63"
                ) from None
            raise
        answer = {
            "organisation": done.organisation.path,
            "organisation_id": str(done.organisation.id),
            "user": done.user.email,
            "user_id": str(done.user.id),
        }
        if done.secret:
            answer["token"] = done.secret
        if done.link:
            answer["link"] = link_to(options["address"], done.link)
        self.stdout.write(json.dumps(answer))
