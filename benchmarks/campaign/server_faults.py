"""Faults of what the gateway depends on, its database and its clusters, and of the networks between: F2, F3, F5, F8, F9, F10."""

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
import psutil
import psycopg

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.oracle import JOB_LABEL
from tests.faults.relay import Way

from .load import is_probe
from .schedule import Planned
from .stage import Begin, NothingToBreak, Repeating, Stage, Undo, suspend

END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'switchyard'"
MOST_CONNECTIONS = 500
WAYS_OF_CUTS: Mapping[str, Way] = {"requests": "requests", "answers": "answers", "both": "both"}


def lie(stage: Stage, planned: Planned) -> Undo:
    """The lies about jobs that are sent in its time (`load.jobs`). Whether a cluster made use of any shows only later: see `was_told`."""
    del stage, planned
    return lambda: True


def was_told(stage: Stage, planned: Planned) -> bool:
    """Whether a cluster made use of one of the lies of this fault."""
    return any(
        one.wanted.lied_by == planned and one.wanted.tag in stage.mischief.told for one in stage.clients.submissions
    )


def cut_cluster(stage: Stage, planned: Planned) -> Undo:
    cluster, way = planned.target.split("+")
    proxy = stage.stand.proxies[cluster]
    proxy.cut(WAYS_OF_CUTS[way])
    return lambda: _done(proxy.heal)


def flap(stage: Stage, planned: Planned) -> Undo:
    """Cut and healed again and again, at intervals of a few seconds."""
    cluster, way = planned.target.split("+")
    proxy = stage.stand.proxies[cluster]
    turns = itertools.cycle([lambda: proxy.cut(WAYS_OF_CUTS[way]), proxy.heal])

    def turn() -> None:
        next(turns)()

    repeating = Repeating(turn, stage.chance.uniform(0.5, 3))

    def stop() -> bool:
        was_cut = repeating.stop()
        proxy.heal()
        return was_cut

    return stop


def cut_database(stage: Stage, planned: Planned) -> Undo:
    relay = stage.stand.databases.primary.relay
    relay.cut(WAYS_OF_CUTS[planned.target])
    return lambda: _done(relay.heal)


def kill_database(stage: Stage, planned: Planned) -> None:
    del planned
    stage.stand.databases.primary.kill()
    stage.stand.databases.primary.start()


def promote(stage: Stage, planned: Planned) -> None:
    del planned
    stage.stand.databases.promote()
    time.sleep(stage.chance.uniform(0, 3))
    stage.stand.databases.add_replica()


def only_read(stage: Stage, planned: Planned) -> Undo:
    del planned
    databases = stage.stand.databases
    databases.set("default_transaction_read_only", "on")
    return lambda: _done(lambda: databases.set("default_transaction_read_only", "off"))


def freeze_database(stage: Stage, planned: Planned) -> Undo:
    del planned
    main = psutil.Process(stage.stand.databases.primary.process.pid)
    return suspend([main, *main.children(recursive=True)])


def end_connections(stage: Stage, planned: Planned) -> Undo:
    del planned
    return Repeating(lambda: stage.stand.databases.ask(END_ALL), 0.3).stop


def take_all_connections(stage: Stage, planned: Planned) -> Undo:
    """All that the database has, and the gateway's own are ended."""
    del planned
    taken: list[psycopg.Connection[Any]] = []
    with suppress(psycopg.OperationalError):
        while len(taken) < MOST_CONNECTIONS:
            taken.append(psycopg.connect(stage.stand.databases.primary.address, connect_timeout=5, autocommit=True))
    if not taken:
        raise NothingToBreak
    taken[0].execute(END_ALL)

    def close() -> bool:
        for connection in taken:
            connection.close()
        return True

    return close


def skew_cluster(stage: Stage, planned: Planned) -> Undo:
    cluster, seconds = planned.target.split("+")
    proxy = stage.stand.proxies[cluster]
    proxy.skew_seconds = int(seconds)

    def right() -> bool:
        proxy.skew_seconds = 0
        return True

    return right


def spoil_watches(stage: Stage, planned: Planned) -> Undo:
    cluster, way = planned.target.split("+")
    proxy = stage.stand.proxies[cluster]
    proxy.spoil_watches(way)
    return proxy.heal_watches


def freeze_api_server(stage: Stage, planned: Planned) -> Undo:
    plane = stage.stand.plane(planned.target)
    plane.pause("kube-apiserver")
    return lambda: _done(lambda: plane.resume("kube-apiserver"))


def kill_api_server(stage: Stage, planned: Planned) -> None:
    stage.stand.plane(planned.target).restart("kube-apiserver")


def kill_etcd(stage: Stage, planned: Planned) -> None:
    stage.stand.plane(planned.target).restart("etcd")


def delete_job(stage: Stage, planned: Planned) -> None:
    """A user of the cluster deletes one of our Jobs that runs: it may fail, and is neither repeated nor billed for longer."""
    job = _running(stage, stage.stand.plane(planned.target), "/apis/batch/v1/jobs", "status.successful=0")
    meta = job["metadata"]
    job_id = str(meta["labels"][JOB_LABEL])
    tag = stage.clients.run.acked.get(job_id, "")
    if not tag or is_probe(tag):  # a job that shows whether a fault was survived has to succeed
        raise NothingToBreak
    stage.clients.may_end(job_id, "failed")
    stage.clients.may_lack_pods(job_id)
    with client(stage.stand.plane(planned.target)) as http:
        path = f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}"
        http.delete(path, params={"propagationPolicy": "Background"}).raise_for_status()


def evict(stage: Stage, planned: Planned) -> None:
    """What `kubectl drain`, an autoscaler and a spot instance's own handler do."""
    plane = stage.stand.plane(planned.target)
    meta = _running(stage, plane, "/api/v1/pods", "status.phase=Running")["metadata"]
    name = {"name": meta["name"], "namespace": meta["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
    with client(plane) as http:
        http.post(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", json=body)


def _running(stage: Stage, plane: ControlPlane, path: str, selector: str) -> dict[str, Any]:
    """One of our objects there that is under way."""
    try:
        with client(plane) as http:
            answer = http.get(path, params={"labelSelector": JOB_LABEL, "fieldSelector": selector})
            items = answer.raise_for_status().json()["items"]
    except httpx.HTTPError:
        raise NothingToBreak from None
    items = [item for item in items if path.endswith("pods") or item.get("status", {}).get("active")]
    if not items:
        raise NothingToBreak
    found: dict[str, Any] = stage.chance.choice(items)
    return found


def _done(work: Any) -> bool:
    work()
    return True


WAYS: Mapping[str, Begin] = {
    "a cluster lies about what becomes of requests": lie,
    "a cluster is cut off": cut_cluster,
    "a cluster's network comes and goes": flap,
    "the database is cut off": cut_database,
    "the database is killed": kill_database,
    "the replica is promoted": promote,
    "the database only reads": only_read,
    "the database stands still": freeze_database,
    "every connection is ended again and again": end_connections,
    "no connection is left": take_all_connections,
    "a cluster's clock is wrong": skew_cluster,
    "watches are spoiled": spoil_watches,
    "an API server stands still": freeze_api_server,
    "an API server is killed": kill_api_server,
    "etcd is killed": kill_etcd,
    "a Job is deleted by hand": delete_job,
    "a pod is evicted": evict,
}
