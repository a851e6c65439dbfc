"""Commands that wait for a job, and the exit status that says how it ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from switchyard.client import ENDED, JSON, Client
from switchyard.logs import Tail
from switchyard.problems import TimedOut

from .interruptions import INTERRUPTED, Interrupted
from .session import Job, Session, print_json, say, session_of
from .text import clean, clean_line

CANCELLED, TIMED_OUT = 126, 124
EVERY_SECONDS = 2.0
STATUSES = (
    f"Exit status: 0 if the job succeeded; that of its program if it failed, 1 if none is known; {CANCELLED} if it was"
    f" cancelled; {TIMED_OUT} after --timeout; {INTERRUPTED} if you interrupt; 125 if the gateway refuses or does not answer."
)
Timeout = Annotated[
    float | None, typer.Option(min=0, help="Give up after this number of seconds. The job goes on.", show_default=False)
]
CancelWithMe = Annotated[
    bool,
    typer.Option(
        "--cancel-with-me", help="Cancel the job if this command is interrupted or terminated before its end."
    ),
]
Follow = Annotated[bool, typer.Option("--logs", "-l", help="Print what the job's pods print, too.")]


@dataclass(frozen=True, slots=True)
class Waiting:
    """How a command waits for its job: for how many seconds at most, and whether its interruption cancels the job."""

    timeout: float | None
    shows_logs: bool
    cancels: bool


def wait(
    context: typer.Context,
    job: Job,
    timeout: Timeout = None,
    show_logs: Follow = False,
    cancel_with_me: CancelWithMe = False,
) -> None:
    session = session_of(context)
    with session.client() as client:
        follow(session, client, job, Waiting(timeout, show_logs, cancel_with_me))


wait.__doc__ = f"""Wait until a job ends, and exit as its program did.

{STATUSES}
"""


def logs(
    context: typer.Context,
    job: Job,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    tail: Annotated[int, typer.Option(min=1, max=5000, help="How many lines of each pod.")] = 500,
    attempt: Annotated[
        int | None, typer.Option(help="Number of an attempt; the newest by default.", show_default=False)
    ] = None,
    pod: Annotated[
        str | None, typer.Option(help="Name of one pod; the first 8 by default.", show_default=False)
    ] = None,
    container: Annotated[
        str | None, typer.Option(help="An init step (init-1) or a sidecar instead of the program.", show_default=False)
    ] = None,
) -> None:
    """Print what a job's pods print. Logs exist as long as their pods: about an hour after the end."""
    session = session_of(context)
    chosen = {"attempt": attempt, "pod": pod, "container": container}
    with session.client() as client:
        if not follows and session.output == "json":
            print_json(client.logs(job, tail_lines=tail, **chosen))
            return
        printed = Printed(client, job, chosen)
        printed.update(tail, is_whole=not follows)
        while follows:
            has_ended = client.job(job)["state"] in ENDED
            printed.update(5000, is_whole=has_ended)
            if has_ended:
                break
            time.sleep(EVERY_SECONDS)
        printed.explain()


def follow(session: Session, client: Client, job_id: str, waiting: Waiting) -> None:
    """Waits for the job's end, says what happens to it meanwhile, and exits with the status that says how it ended."""
    printed = Printed(client, job_id, {}) if waiting.shows_logs else None
    say_changes = changes()

    def seen(job: JSON) -> None:
        say_changes(job)
        if printed is not None and (job["started_at"] or job["state"] in ENDED):
            printed.update(5000, is_whole=job["state"] in ENDED)

    try:
        job = client.wait(job_id, timeout=waiting.timeout, every=EVERY_SECONDS, seen=seen)
    except TimedOut as error:
        say(f"{error} To wait again: switchyard wait {job_id}")
        raise typer.Exit(TIMED_OUT) from None
    except Interrupted:
        if waiting.cancels:
            end_with_me(client, job_id)
        say(f"Interrupted. Job {job_id} goes on: `switchyard wait {job_id}` or `switchyard cancel {job_id}`.")
        raise typer.Exit(INTERRUPTED) from None
    if printed is not None:
        printed.explain()
    if session.output == "json":
        print_json(job)
    raise typer.Exit(status_of(job))


def end_with_me(client: Client, job_id: str) -> NoReturn:
    """Cancels the job, and exits as interrupted."""
    say(f"Interrupted: job {job_id} is {client.act(job_id, 'cancel')['state']}.")
    raise typer.Exit(INTERRUPTED) from None


def status_of(job: JSON) -> int:
    """The exit status that says how the job ended."""
    if job["state"] == "succeeded":
        return 0
    if job["state"] == "cancelled":
        return CANCELLED
    code = job["exit_code"]
    return code if isinstance(code, int) and 0 < code < 256 else 1  # noqa: PLR2004 - what a process can exit with


def changes() -> Callable[[JSON], None]:
    """A function that says the state and the reason of a job whenever they differ from those that it said before."""
    known: Any = None

    def say_change(job: JSON) -> None:
        nonlocal known
        now = (job["state"], (job["reason"] or {}).get("message"))
        if now != known:
            known = now
            say(f"{time.strftime('%H:%M:%S')}  {now[0]}{f': {now[1]}' if now[1] else ''}")

    return say_change


class Printed:
    """The logs of a job's pods, as far as they are printed."""

    def __init__(self, client: Client, job_id: str, chosen: dict[str, Any]) -> None:
        self._client, self._job_id, self._chosen = client, job_id, chosen
        self._tails: dict[tuple[Any, str], Tail] = {}
        self._unavailable: dict[str, str] = {}

    def update(self, lines: int, *, is_whole: bool) -> None:
        """Prints what is new; a last line without its end only with `is_whole`."""
        read = self._client.logs(self._job_id, tail_lines=lines, **self._chosen)
        several = read["pods"] > 1
        for log in read["items"]:
            pod = str(log["pod"])
            if log["unavailable"]:
                self._unavailable[pod] = str(log["unavailable"])
                continue
            self._unavailable.pop(pod, None)
            tail = self._tails.setdefault((read["attempt"], pod), Tail())
            new, has_gap = tail.new_lines(log["text"], is_cut=log["truncated"], is_whole=is_whole)
            if has_gap:
                say(f"{pod}: some lines were too many to read, and are missing here.")
            for line in new:
                typer.echo(f"{clean(pod)}  {clean_line(line)}" if several else clean_line(line))

    def explain(self) -> None:
        """Says why logs could not be read."""
        for pod, why in self._unavailable.items():
            say(f"{pod}: {why}")
        if not self._tails and not self._unavailable:
            say("There are no logs: no pod has started.")
