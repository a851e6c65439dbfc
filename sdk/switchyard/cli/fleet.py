"""Commands about what there is, who may use how much, and what it cost."""

import json
import re
from typing import Annotated

import typer

from .session import Tenant, session_of
from .text import age, money

NO_FLAVOR = {"gpu_model": "", "name": "", "capacity_type": "", "free": 0, "total": 0}


def clusters(context: typer.Context) -> None:
    """List clusters with their GPUs."""
    session = session_of(context)
    with session.client() as client:
        found = list(client.items("clusters"))
    rows = [
        [
            cluster["name"],
            f"stale, {age(cluster['observed_at'])}" if cluster["is_stale"] else cluster["state"],
            cluster["region"],
            flavor["gpu_model"] or flavor["name"],
            flavor["capacity_type"],
            f"{flavor['free']} of {flavor['total']}" if flavor["total"] else "",
        ]
        for cluster in found
        for flavor in cluster["flavors"] or [NO_FLAVOR]
    ]
    columns = ["CLUSTER", "STATE", "REGION", "FLAVOR", "CAPACITY", "FREE"]
    session.show(found, columns, rows, if_none="There is no cluster that you can see.")


def fits(
    context: typer.Context,
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="For whom.", show_default=False)],
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each pod.")] = 1,
    model: Annotated[list[str], typer.Option(help="Allowed GPU model, as often as you like.", show_default=False)] = [],
    pods: Annotated[int, typer.Option(min=1, help="Pods that must start together.")] = 1,
    cpu: Annotated[str, typer.Option(help="CPU cores of each pod.")] = "1",
    memory: Annotated[str, typer.Option(help="Memory of each pod.")] = "2Gi",
) -> None:
    """Count how many more jobs of a shape fit now, by cluster."""
    gpu = {"gpu": {"count": gpus, **({"models": model} if model else {})}} if gpus else {}
    shape = {"pod_sets": [{"count": pods, "cpu": cpu, "memory": memory, **gpu}]}
    session = session_of(context)
    with session.client() as client:
        found = client.get("capacity", tenant=tenant, shape=json.dumps(shape))
    rows = [
        [one["cluster"], _count(one), one["within_quota"], (one["why_none"] or {}).get("message")]
        for one in [{"cluster": "all", "why_none": None, **found}, *found["clusters"]]
    ]
    session.show(found, ["CLUSTER", "FIT", "WITHIN QUOTA", "WHY NONE"], rows, if_none="")


def quotas(context: typer.Context, tenant: Tenant = None) -> None:
    """List limits with what they hold."""
    session = session_of(context)
    with session.client() as client:
        found = list(client.items("quotas", tenant=tenant))
    rows = [
        [
            limit["tenant"],
            limit["resource"],
            ", ".join(limit["clusters"]) or "all",
            limit["held"],
            limit["nominal"],
            limit["borrowed"],
            limit["lent"],
            limit["free"],
        ]
        for limit in found
    ]
    columns = ["TENANT", "RESOURCE", "CLUSTERS", "HELD", "NOMINAL", "BORROWED", "LENT", "FREE"]
    session.show(found, columns, rows, if_none="There is no limit: what you see here is unlimited.")


def usage(
    context: typer.Context,
    tenant: Tenant = None,
    month: Annotated[str | None, typer.Option(help="YYYY-MM; this month by default.", show_default=False)] = None,
    by: Annotated[
        str, typer.Option(help="Any of tenant, cluster, flavor, user, job, day, month, with commas.")
    ] = "tenant",
    *,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Under the current paths of tenants, not those of then.")
    ] = False,
) -> None:
    """Report what ran and what it cost."""
    if month is not None and not re.fullmatch(r"\d{4}-\d{2}", month):
        raise typer.BadParameter("--month takes YYYY-MM.")
    session = session_of(context)
    with session.client() as client:
        found = client.get("usage", tenant=tenant, month=month, group_by=by, paths="as_is" if as_is else None)
    keys = found["group_by"]
    rows = [[*(item[key] for key in keys), item["gpu_hours"], money(item["cost"])] for item in found["items"]]
    totals = found["totals_by_currency"]
    if keys and rows:
        rows += [["total", *[""] * (len(keys) - 1), total["gpu_hours"], money(total["cost"])] for total in totals]
    columns = [*(key.upper() for key in keys), "GPU-HOURS", "COST"]
    session.show(found, columns, rows, if_none="Nothing ran in this time.")


def _count(found: dict[str, object]) -> str:
    return f"{found['count']}{' or more' if found['at_least'] else ''}"
