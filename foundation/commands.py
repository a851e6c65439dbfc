"""What the gateway's management commands share."""

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError

from .problems import Problem


class GatewayCommand(BaseCommand):
    """A command that serves no page.

    Of Django's checks only those of security run first: they read the key ring. The others judge code, which `make check` does.
    They import every view, and that is half the time and a third of the memory of a command.
    """

    requires_system_checks = [Tags.security]


def refused_file(problem: Problem) -> CommandError:
    """The error of a command that was given a file: each fault on a line, after its field."""
    lines = [f"{error.field or 'file'}: {error.detail}" for error in problem.errors]
    return CommandError("\n".join(lines or [problem.detail or problem.code]))
