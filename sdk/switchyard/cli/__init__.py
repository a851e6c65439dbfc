"""The command `switchyard`."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from switchyard.problems import Problem, SwitchyardError

from . import account, fleet, following, jobs, prices
from .interruptions import INTERRUPTED, Interrupted, end_by_exception
from .session import REFUSED, Output, Session, say

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit status: 0 done, 2 wrong usage, {REFUSED} the gateway refused or does not answer. Commands that wait for a"
    " job have further ones, see `switchyard wait --help`.",
)
for command in (
    account.login,
    account.logout,
    account.whoami,
    jobs.submit,
    jobs.run,
    jobs.jobs,
    jobs.show,
    jobs.why,
    jobs.events,
    jobs.quote,
    jobs.rerun,
    jobs.cancel,
    jobs.suspend,
    jobs.move,
    jobs.resume,
    following.logs,
    following.wait,
    fleet.clusters,
    fleet.fits,
    fleet.quotas,
    fleet.usage,
):
    app.command()(command)
app.add_typer(prices.prices, name="prices")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"switchyard {version('switchyard-client')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    profile: Annotated[
        str, typer.Option(envvar="SWITCHYARD_PROFILE", help="The login to use, if you have several.")
    ] = "default",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="`json` prints the API's answer, for programs.")
    ] = Output.TABLE,
    shows_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Run jobs on many Kubernetes clusters."""
    del shows_version
    end_by_exception()
    context.obj = Session(profile, output)


def main() -> None:
    """Runs the command of this process' arguments, and exits."""
    try:
        app(prog_name="switchyard")
    except Interrupted:
        sys.exit(INTERRUPTED)
    except Problem as refusal:
        say(f"Refused ({refusal.code}): {refusal}")
        for error in refusal.errors:
            say(f"  {error.get('field')}: {error.get('detail')}")
        if refusal.request_id:
            say(f"Request {refusal.request_id}")
        sys.exit(REFUSED)
    except SwitchyardError as error:
        say(str(error))
        sys.exit(REFUSED)
    except BrokenPipeError:  # the reader of our output has read enough
        sys.stdout = None
        sys.exit(0)
