"""Commands about jobs."""

import hashlib
import uuid
from collections.abc import Callable
from typing import Annotated, Any

import typer

from switchyard.client import JSON, Client
from switchyard.problems import Problem

from .following import STATUSES, CancelWithMe, Follow, Timeout, Waiting, end_with_me, follow
from .interruptions import INTERRUPTED, Interrupted
from .session import REFUSED, Job, Session, Tenant, print_json, say, session_of
from .specs import pairs, read_spec, with_options
from .text import age, clean, duration, local, money, request, seconds_of, waiting_stop

File = Annotated[
    str,
    typer.Argument(help="A job spec or a Kubernetes Job in YAML or JSON; - is the standard input.", show_default=False),
]
JobIds = Annotated[list[str], typer.Argument(help="Ids of jobs.", show_default=False)]
Name = Annotated[str | None, typer.Option("--name", "-n", help="The job's name.", show_default=False)]
Labels = Annotated[list[str], typer.Option("--label", help="KEY=VALUE, as often as you like.", show_default=False)]
Key = Annotated[
    str | None,
    typer.Option(
        help="What happens once: with the same key and job, a repetition finds the first job. A pipeline's run and step, say."
        " A new one by default.",
        show_default=False,
    ),
]
CheckpointWait = Annotated[
    str | None,
    typer.Option(
        "--wait-for-checkpoint",
        help="Let them run until their next checkpoint, this long at most: 10m, 1h, or a number of seconds. An hour at most.",
        show_default=False,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end, and exit as the job's program did.")]


def submit(
    context: typer.Context,
    file: File,
    tenant: Tenant = None,
    name: Name = None,
    label: Labels = [],
    key: Key = None,
    waits: Wait = False,
    show_logs: Follow = False,
    timeout: Timeout = None,
    cancel_with_me: CancelWithMe = False,
) -> None:
    spec = with_options(read_spec(file), tenant=tenant, name=name, labels=label)
    _submit(session_of(context), spec, key, _waiting(waits, show_logs, timeout, cancel_with_me))


submit.__doc__ = f"""Submit a job from a file, and print its id. --tenant, --name and --label replace what the file says.

With --wait: {STATUSES}
"""


def run(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="The container image.", show_default=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The command in it, after --; the image's by default.", show_default=False),
    ] = None,
    tenant: Tenant = None,
    name: Name = None,
    label: Labels = [],
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each pod.")] = 0,
    model: Annotated[
        list[str], typer.Option(help="Allowed GPU model, such as H100-80GB, as often as you like.", show_default=False)
    ] = [],
    pods: Annotated[int, typer.Option(min=1, help="Pods, which start together.")] = 1,
    cpu: Annotated[str, typer.Option(help="CPU cores of each pod.")] = "1",
    memory: Annotated[str, typer.Option(help="Memory of each pod.")] = "2Gi",
    env: Annotated[list[str], typer.Option(help="NAME=VALUE, as often as you like.", show_default=False)] = [],
    deadline: Annotated[
        int | None, typer.Option(help="Seconds after which the job is ended; a day by default.", show_default=False)
    ] = None,
    key: Key = None,
    waits: Wait = False,
    show_logs: Follow = False,
    timeout: Timeout = None,
    cancel_with_me: CancelWithMe = False,
) -> None:
    """Submit a job of one kind of pod without a file: switchyard run -t acme/research --gpus 8 IMAGE -- python train.py

    Options with --wait and the exit status are those of `switchyard submit`.
    """
    if tenant is None:
        raise typer.BadParameter("--tenant says whose job it is; `switchyard whoami` shows where you have roles.")
    if model and not gpus:
        raise typer.BadParameter("--model needs --gpus.")
    pod: JSON = {"name": "main", "count": pods, "image": image, "cpu": cpu, "memory": memory}
    if command:
        pod["command"] = command
    if env:
        pod["env"] = dict(pairs(env, "--env"))
    if gpus:
        pod["gpu"] = {"count": gpus, **({"models": model} if model else {})}
    key = key or str(uuid.uuid4())
    # By the key, so that a repetition is the same job.
    spec: JSON = {"name": name or f"run-{hashlib.sha256(key.encode()).hexdigest()[:8]}", "pod_sets": [pod]}
    if deadline is not None:
        spec["deadline_seconds"] = deadline
    spec = with_options(spec, tenant=tenant, name=None, labels=label)
    _submit(session_of(context), spec, key, _waiting(waits, show_logs, timeout, cancel_with_me))


def rerun(
    context: typer.Context,
    job: Job,
    key: Key = None,
    waits: Wait = False,
    show_logs: Follow = False,
    timeout: Timeout = None,
    cancel_with_me: CancelWithMe = False,
) -> None:
    """Submit a job again as it was: a new job with the same spec. Options are those of `switchyard submit`."""
    session = session_of(context)
    with session.client() as client:
        before = client.job(job)
    spec = {**before["spec"], "tenant": before["tenant"]}
    _submit(session, spec, key, _waiting(waits, show_logs, timeout, cancel_with_me))


def jobs(
    context: typer.Context,
    tenant: Tenant = None,
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="One or more, with commas: queued,running.", show_default=False)
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of a cluster.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="Email of who submitted them.", show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help="KEY=VALUE.", show_default=False)] = None,
    most: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 20,
) -> None:
    """List jobs, the newest first."""
    session = session_of(context)
    wanted = None if label is None else ":".join(next(iter(pairs([label], "--label").items())))
    with session.client() as client:
        found = list(
            client.items("jobs", most=most, tenant=tenant, state=state, cluster=cluster, user=user, label=wanted)
        )
    rows = [
        [
            job["id"],
            job["name"],
            job["tenant"],
            job["state"],
            request(job["spec"]),
            (job["attempt"] or {}).get("cluster"),
            age(job["created_at"]),
        ]
        for job in found
    ]
    session.show(
        found, ["ID", "NAME", "TENANT", "STATE", "REQUESTS", "CLUSTER", "AGE"], rows, if_none="There is no such job."
    )


def show(context: typer.Context, job: Job) -> None:
    """Show a job: its state and reason, where it runs, what it costs."""
    session = session_of(context)
    with session.client() as client:
        shown = client.job(job)
    attempt = shown["attempt"] or {}
    fields = {
        "id": shown["id"],
        "name": shown["name"],
        "tenant": shown["tenant"],
        "state": shown["state"],
        "reason": (shown["reason"] or {}).get("message"),
        "requests": request(shown["spec"]),
        "submitted": f"{local(shown['created_at'])} by {shown['created_by']}",
        "started": local(shown["started_at"]),
        "finished": local(shown["finished_at"]),
        "exit code": shown["exit_code"],
        "failure": (shown["failure"] or {}).get("message"),
        "attempt": attempt.get("number"),
        "cluster": attempt.get("cluster"),
        "cost": money(shown["cost"]),
    }
    if shown.get("pending_stop"):
        fields["stop"] = waiting_stop(shown["pending_stop"]).removeprefix("; ")
    session.show_fields(shown, fields)


def why(context: typer.Context, job: Job) -> None:
    """Explain why a job waits, overall and for each cluster, and when it may start."""
    session = session_of(context)
    with session.client() as client:
        found = client.explanation(job)
    if session.output == "json":
        print_json(found)
        return
    typer.echo(clean(f"{found['state']}: {found['reason']['message'] or 'it does not wait.'}"))
    if found["expected_start"]:
        typer.echo(clean(f"May start: {found['expected_start']['message']}"))
    for limit in found["quota"]:
        typer.echo(
            clean(
                f"Quota: {limit['tenant']} holds {limit['held']} of {limit['nominal']} {limit['resource']};"
                f" the job needs {limit['lacking']} more"
            )
        )
        for holder in limit["holders"]:
            typer.echo(clean(f"  held by {holder['tenant'] or 'tenants that you cannot see'}: {holder['held']}"))
    if found["clusters"]:
        rows = [[one["cluster"], one["code"], one["message"]] for one in found["clusters"]]
        session.show(found, ["CLUSTER", "CODE", "WHY NOT"], rows, if_none="")


def events(context: typer.Context, job: Job) -> None:
    """Show what happened to a job, the oldest first."""
    session = session_of(context)
    with session.client() as client:
        found = list(client.events(job))
    rows = [[local(event["at"]), event["kind"], event["message"]] for event in found]
    session.show(found, ["AT", "KIND", "WHAT"], rows, if_none="Nothing has happened yet.")


def quote(context: typer.Context, file: File, tenant: Tenant = None) -> None:
    """Show where a job would run now, when and for how much, and submit nothing."""
    session = session_of(context)
    with session.client() as client:
        found = client.post("quotes", with_options(read_spec(file), tenant=tenant, name=None, labels=[]))
    if session.output == "json":
        print_json(found)
        return
    offers = [*found["offers"], *found.get("later", [])]
    rows = [
        [
            offer["cluster"],
            offer["flavor"],
            local(offer["expected_start_at"]),
            duration(offer["estimated_seconds"]) if offer["estimated_seconds"] else "",
            money(offer["price_per_hour"]),
            money(offer["estimated_cost"]),
        ]
        for offer in offers
    ]
    session.show(
        found, ["CLUSTER", "FLAVOR", "START", "RUNS", "PER HOUR", "COST"], rows, if_none="No cluster has room now."
    )
    if found["reason"]:
        say(f"It would wait: {found['reason']['message']}")
    for reason in found["why_not"]:
        say(f"Not on {reason['cluster']}: {reason['message']}")


def cancel(context: typer.Context, jobs: JobIds) -> None:
    """Cancel jobs. Their programs get SIGTERM, and SIGKILL 30 seconds later."""
    _act(context, jobs, "cancel")


def suspend(context: typer.Context, jobs: JobIds, wait: CheckpointWait = None) -> None:
    """Suspend jobs: their runs are stopped, and continue from their last checkpoints after `resume`."""
    _act(context, jobs, "suspend", _until_checkpoint(wait))


def move(
    context: typer.Context,
    jobs: JobIds,
    cluster: Annotated[
        list[str],
        typer.Option(
            "--to",
            help="Cluster on which they continue, as often as you like; any other by default.",
            show_default=False,
        ),
    ] = [],
    reason: Annotated[str, typer.Option(help="Why, for their timelines.", show_default=False)] = "",
    lose_work: Annotated[
        bool, typer.Option("--lose-work", help="Also move what has to start from its beginning.")
    ] = False,
    wait: CheckpointWait = None,
    key: Key = None,
) -> None:
    """Move running jobs to other clusters that have room for them now. Nothing is stopped if none has."""
    wanted: JSON = {"clusters": cluster, "reason": reason, "lose_work": lose_work, **_until_checkpoint(wait)}
    key = key or str(uuid.uuid4())
    _each(context, jobs, lambda client, job: client.move(job, key=f"{key}-{job}", **wanted))


def resume(context: typer.Context, jobs: JobIds) -> None:
    """Let suspended jobs run again. A stop that waits for a checkpoint is withdrawn."""
    _act(context, jobs, "resume")


def _waiting(waits: bool, show_logs: bool, timeout: float | None, cancels: bool) -> Waiting | None:
    """How the command waits for the job that it submits; None if it does not."""
    if waits or show_logs:
        return Waiting(timeout, show_logs, cancels)
    if timeout is not None or cancels:
        raise typer.BadParameter("--timeout and --cancel-with-me need --wait.")
    return None


def _submit(session: Session, spec: JSON, key: str | None, waiting: Waiting | None) -> None:
    key = key or str(uuid.uuid4())
    with session.client() as client:
        try:
            job = client.submit(spec, key=key)
        except Interrupted:
            if waiting is None or not waiting.cancels:
                say(f"Interrupted. The job may have been submitted: the same command with --key {key} finds it.")
                raise typer.Exit(INTERRUPTED) from None
            end_with_me(client, client.submit(spec, key=key)["id"])
        if waiting is None:
            print_json(job) if session.output == "json" else typer.echo(job["id"])
            return
        say(f"Job {job['id']}")
        follow(session, client, job["id"], waiting)


def _until_checkpoint(wait: str | None) -> JSON:
    """What a request adds so that it waits for a checkpoint."""
    if wait is None:
        return {}
    seconds = seconds_of(wait)
    if seconds is None:
        raise typer.BadParameter(f"--wait-for-checkpoint {clean(wait)}: write 10m, 1h, or a number of seconds.")
    return {"wait_for_checkpoint_seconds": seconds}


def _act(context: typer.Context, job_ids: list[str], action: str, body: JSON | None = None) -> None:
    """Does it to every job."""
    _each(context, job_ids, lambda client, job_id: client.act(job_id, action, body))


def _each(context: typer.Context, job_ids: list[str], ask: Callable[[Client, str], JSON]) -> None:
    """Asks it of every job, also after a refusal, which the exit status then says."""
    session, answers, refusals = session_of(context), list[Any](), list[Problem]()
    with session.client() as client:
        for job_id in job_ids:
            try:
                answers.append(ask(client, job_id))
            except Problem as refusal:
                refusals.append(refusal)
                say(f"{job_id}: {refusal}")
            else:
                if session.output != "json":
                    typer.echo(f"{job_id}  {_standing(answers[-1])}")
    if session.output == "json":
        print_json(answers)
    if refusals:
        raise typer.Exit(REFUSED)


def _standing(job: JSON) -> str:
    """Its state, and for what a stop of it waits."""
    stop = job.get("pending_stop")
    return f"{job['state']}{waiting_stop(stop)}" if stop else str(job["state"])
