"""Jobs that name network attachments. Administrators declare, change and withdraw them; what the clusters allow and have follows later,
or is missing for a while.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from clusters.engine.networks import attachment_of
from clusters.models import Network
from clusters.operations.networks import (
    NetworkChanges,
    WantedNetwork,
    create_network,
    remove_network,
    update_network,
)
from clusters.queries.networks import visible_networks
from devtools.simulation.clusters.fabric import Declared
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS
from foundation.problems import Problem
from tenancy.queries import SYSTEM

from .administration import TEAM_NAMES, cluster_id, path_of
from .clients import Submission

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "attached"
NETWORKS = ("rdma", "storage")
DEFINITIONS = ("first", "second")
NAMESPACES = {"rdma": "fabric", "storage": ""}
"""The definition of a storage network is in the namespace of each tenant."""
USES = 0.7
"""The share of the jobs that name networks."""
ABSENT_SECONDS = (5.0, 60.0)
"""How long something is missing."""
LATE_SECONDS = (0.0, 30.0)
"""How long after a change an administrator of the cluster applies the policy again."""


def equip(seed: int, submissions: list[Submission]) -> None:
    """Lets most jobs name one network or both, in any order. Of two pod sets, only the first."""
    chance = random.Random(f"{seed}/attaching")
    for one in submissions:
        if chance.random() < USES:
            names = chance.sample(NETWORKS, chance.choice((1, 1, 2)))
            one.body["pod_sets"][0]["networks"] = names


def begin(world: "World") -> None:
    """Both clusters have both networks, and policies that allow them."""
    if KIND in world.faults.rates:
        provide(world)


def provide(world: "World") -> None:
    """All networks are declared as at the beginning, for all tenants; definitions exist, and policies allow what is declared."""
    if KIND not in world.faults.rates:
        return
    for cluster in CLUSTERS:
        world.clusters[cluster].fabric.missing.clear()
        for name in NETWORKS:
            _wish(world, cluster, name, DEFINITIONS[0])
        world.wish(f"applies the policy of {cluster}", lambda cluster=cluster: _apply(world, cluster))  # type: ignore[misc]


def _wish(world: "World", cluster: str, name: str, definition: str, team: str = "") -> None:
    told = f"declares {name} of {cluster} as {definition} for {team or 'all'}"
    world.wish(told, lambda: _declare(world, cluster, name, definition, team))


def _declare(world: "World", cluster: str, name: str, definition: str, team: str) -> None:
    namespace, tenant = NAMESPACES[name], path_of(team) if team else ""
    at = cluster_id(cluster)
    asked = _asked(world, cluster, name, attachment_of(namespace, definition), team)
    network = Network.objects.filter(cluster_id=at, name=name).first()
    if network is None:
        create_network(SYSTEM, at, WantedNetwork(name, definition, namespace, tenant))
    else:
        update_network(SYSTEM, at, network.id, NetworkChanges(definition, namespace, tenant))
    asked.known_us = world.scheduler.now_us


def _withdraw(world: "World", cluster: str, name: str) -> None:
    at, asked = cluster_id(cluster), _asked(world, cluster, name, "", "")
    network = Network.objects.filter(cluster_id=at, name=name).first()
    if network is not None:
        remove_network(SYSTEM, at, network.id)
    asked.known_us = world.scheduler.now_us


def _asked(world: "World", cluster: str, name: str, attachment: str, team: str) -> Declared:
    return world.clusters[cluster].fabric.begins(name, attachment, team, world.scheduler.now_us)


def _apply(world: "World", cluster: str) -> None:
    """As the file that the gateway offers for download says."""
    rows = visible_networks(SYSTEM, cluster_id(cluster))
    world.clusters[cluster].fabric.apply([attachment_of(row.namespace, row.definition) for row in rows])


def _apply_later(world: "World", cluster: str) -> None:
    later = world.faults.between(*LATE_SECONDS)
    world.scheduler.after(later, lambda: world.wish(f"applies the policy of {cluster}", lambda: _apply(world, cluster)))


def change(world: "World") -> None:
    """A network gets another definition, serves one team only, is withdrawn or lacks its definition, all for a while; a policy is put
    back to that without networks; or someone asks for what cannot be.
    """
    faults = world.faults
    cluster, name = CLUSTERS[faults.choose(CLUSTERS)], NETWORKS[faults.choose(NETWORKS)]
    team, later = TEAM_NAMES[faults.choose(TEAM_NAMES)], faults.between(*ABSENT_SECONDS)
    match faults.choose(range(7)):
        case 0 | 1:
            _wish(world, cluster, name, DEFINITIONS[1])
            _apply_later(world, cluster)
            return
        case 2:
            _wish(world, cluster, name, DEFINITIONS[0], team)
        case 3:
            world.wish(f"withdraws {name} of {cluster}", lambda: _withdraw(world, cluster, name))
            _apply_later(world, cluster)
        case 4:
            _lose_definition(world, cluster, name)
        case 5:
            world.tell("stranger", f"applies an old policy on {cluster}")
            world.clusters[cluster].fabric.apply(())
        case 6:
            world.wish("declares in vain", lambda: _declare_in_vain(world, cluster, name))
            return
    world.scheduler.after(later, lambda: provide(world))


def _lose_definition(world: "World", cluster: str, name: str) -> None:
    world.tell("stranger", f"deletes the definitions of {name} on {cluster}")
    world.clusters[cluster].fabric.missing |= {attachment_of(NAMESPACES[name], one) for one in DEFINITIONS}


def _declare_in_vain(world: "World", cluster: str, name: str) -> None:
    at = cluster_id(cluster)
    known = Network.objects.filter(cluster_id=at).order_by("id").first()
    unknown, absent = WantedNetwork(name, "net", tenant="globex"), WantedNetwork("other", "net", tenant="acme/nobody")
    requests: list[Callable[[], object]] = [
        lambda: create_network(SYSTEM, at, unknown),
        lambda: create_network(SYSTEM, at, absent),
        lambda: remove_network(SYSTEM, at, at),
    ]
    if known is not None:
        requests.append(lambda: create_network(SYSTEM, at, WantedNetwork(known.name, "other")))
        requests.append(lambda: update_network(SYSTEM, at, known.id, NetworkChanges(tenant="globex")))
    for request in requests:
        try:
            request()
        except Problem as problem:
            if problem.status >= 500:
                world.machine.unexpected.append(f"a wrong network is answered {problem.status}: {problem}")
        else:
            world.machine.unexpected.append("a wrong network is declared")


@judging
def pods_start_with_exactly_the_networks_that_they_were_promised(world: "World") -> list[str]:
    """What the pods of each of our Jobs asked for when they started is what the row of the Job says, in that order. What was adopted
    after a restore has no promise.
    """
    if KIND not in world.faults.rates or world.lost_commits.spans:
        return []
    promised = dict(world.watch.rows(PROMISED))
    return [
        f"pods of {name} started on {cluster.name} with {sorted(attached)}, and were promised {promised[name]!r}"
        for cluster in [*world.clusters.values(), *world.removed]
        for name, attached in sorted(cluster.fabric.started.items())
        if name in promised and attached != {promised[name]}
    ]


PROMISED = """
SELECT object.name,
       coalesce((SELECT string_agg(CASE one ->> 'namespace' WHEN '' THEN '' ELSE (one ->> 'namespace') || '/' END
                                   || (one ->> 'definition'), ',' ORDER BY number)
                   FROM jsonb_array_elements(object.networks) WITH ORDINALITY AS each (one, number)), '')
  FROM federation_remoteobject AS object ORDER BY object.name
"""


@judging
def networks_are_promised_as_they_were_declared(world: "World") -> list[str]:
    """Each object of a job gets the networks that its pod set names, each as its cluster had it for the job's team when the attempt
    was placed.
    """
    if KIND not in world.faults.rates or world.lost_commits.spans:
        return []
    found = []
    for name, cluster, team, wanted, networks, reserved_us, placed_us in world.watch.rows(PLACED):
        if [one["network"] for one in networks] != wanted:
            found.append(f"{name} names {wanted} and was promised {networks}")
        found += [
            f"{name} of {team} was promised {one}, as {cluster} never had it for that team then"
            for one in networks
            if not world.clusters[cluster].fabric.may_have_been(
                one["network"], attachment_of(one["namespace"], one["definition"]), team, reserved_us, placed_us
            )
        ]
    return found


PLACED = """
SELECT object.name, cluster.name, tenant.name, coalesce(job.spec -> 'pod_sets' -> object.position -> 'networks', '[]'),
       object.networks, (extract(epoch FROM attempt.reserved_at) * 1000000)::bigint,
       (extract(epoch FROM change.at) * 1000000)::bigint
  FROM federation_remoteobject AS object
  JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
  JOIN federation_job AS job ON job.id = attempt.job_id
  JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN simulation.changes AS change ON change.what = 'attempt' AND change.id = attempt.id::text AND change.before IS NULL
 ORDER BY object.id
"""


@judging
def a_refusal_of_a_network_is_a_clusters(world: "World") -> list[str]:
    """An attempt that ended because its attachments are not allowed was refused by its cluster's policy."""
    refused = {name for cluster in [*world.clusters.values(), *world.removed] for name in cluster.fabric.refused}
    ended = [names for (names,) in world.watch.rows(NOT_LISTED)]
    return [f"{names} ended as refused, and none was" for names in ended if refused.isdisjoint(names)]


NOT_LISTED = """
SELECT array_agg(object.name ORDER BY object.name)
  FROM federation_remoteobject AS object JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
 WHERE strpos(attempt.end_message, 'attachments that are not listed') > 0 GROUP BY attempt.id ORDER BY 1
"""
EVENTS: dict[str, Callable[["World"], None]] = {KIND: change}
"""By the kind of fault."""
