"""Pulls images to the nodes that should have them: begins pulls, and visits those under way until their objects are gone.

Its phases are those of every preparation (`preparing`). A pull that runs twice would do no harm; but no object is left behind, and
none of others is touched.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

import clusters.queries
from clusters.engine.images import normal_name
from federation.engine.objects import isolation
from federation.engine.objects.job_secrets import versions_of
from federation.engine.prepulls import DEADLINE, Outcome, Verdict, decide, too_late
from federation.locks import lock_prepull_policy
from federation.models import Prepull, PrepullPolicy
from federation.models.prepulls import MOST_AT_ONCE
from federation.queries.prepulls import (
    identity_of,
    live_prepulls,
    may_prepull,
    nodes_of,
    prepulls_are_in_use,
    tolerations_on,
    wanted_of,
)
from federation.queries.secrets import promised_secrets
from foundation.clock import database_now
from foundation.crash import crash_point
from foundation.ids import new_id

from . import preparation_calls, pull_calls
from .images import remember_proven
from .preparation_calls import Gone, Seen
from .preparing import IDLE, Call, Failed, Visit, record_step, since, visit_all
from .pull_calls import Pull

logger = logging.getLogger(__name__)
Phase = Prepull.Phase


def keep_images() -> int:
    """The number of pulls visited. Without policies it is one query."""
    if not prepulls_are_in_use():
        return 0
    _let_go_of_removed_clusters()
    if not may_prepull():
        return 0
    _plan_all()
    crash_point("prepulls planned")
    visited = visit_all(Prepull.objects, _Visit, record)
    _bury()
    return visited


def _let_go_of_removed_clusters() -> None:
    """No call reaches a removed cluster: what is left of its policies goes, the Jobs end by their deadline."""
    PrepullPolicy.objects.filter(cluster__removed_at__isnull=False).delete()


def _bury() -> None:
    """Deletes removed policies whose objects are all gone."""
    gone = PrepullPolicy.objects.filter(removed_at__isnull=False)
    gone.exclude(id__in=Prepull.objects.exclude(phase=Phase.IDLE).values("policy_id")).delete()


def _plan_all() -> None:
    for policy_id in PrepullPolicy.objects.filter(removed_at=None).order_by("id").values_list("id", flat=True):
        try:
            with transaction.atomic():
                _plan(policy_id)
        except IntegrityError:
            # Another worker took the slots: the next round counts them.
            logger.info("pulls of policy %s were planned by another worker", policy_id)


def _plan(policy_id: UUID) -> None:
    policy = lock_prepull_policy(policy_id)
    if policy is None or policy.removed_at is not None:
        return
    now = database_now()
    wanted = wanted_of(policy, now)
    known = set(wanted.nodes)
    policy.prepulls.filter(phase=Phase.IDLE).exclude(node__in=known).delete()
    begun = decide(wanted, now)
    taken = Prepull.objects.filter(cluster_id=policy.cluster_id, slot__isnull=False).values_list("slot", flat=True)
    free = sorted(set(range(MOST_AT_ONCE)) - set(taken))
    for slot, (image, node) in zip(free, begun, strict=False):
        _begin(policy, image, node, slot)


def _begin(policy: PrepullPolicy, image: str, node: str, slot: int) -> None:
    promised = _promised(policy)
    if promised is None:
        return
    row, _ = Prepull.objects.get_or_create(policy=policy, image=image, node=node, defaults={"cluster": policy.cluster})
    row.policy, row.object_id = policy, new_id()
    Prepull.objects.filter(id=row.id, phase=Phase.IDLE).update(
        phase=Phase.PLANNED,
        slot=slot,
        object_id=row.object_id,
        namespace=identity_of(row).namespace,
        secrets=promised,
        begun_at=Now(),
        released_at=None,
        message="",
    )


def _promised(policy: PrepullPolicy) -> dict[str, Any] | None:
    """The pull secret's version and the name that its copy will have; None if the tenant lacks the secret."""
    if not policy.pull_secret:
        return {}
    keyring = clusters.queries.known_secrets({policy.pull_secret})
    return promised_secrets({"pull_secret": policy.pull_secret}, policy.tenant.path, keyring)


class _Visit(Visit):
    """The calls to one cluster."""

    def create(self) -> list[tuple[Prepull, Call]]:
        """Creates the objects of planned pulls."""
        nodes: dict[UUID, Mapping[str, Any]] = {}
        calls: list[tuple[Prepull, Call]] = []
        for row in live_prepulls(self.cluster.id, Phase.PLANNED):
            found = nodes.setdefault(row.policy_id, {node.name: node for node in nodes_of(row.policy)})
            node = found.get(row.node)
            if node is None:
                record(row, Seen(Verdict(Outcome.FAILED, "The node is gone.")))
                continue
            pull = self._pull(row, tolerations_on(row.policy, node))
            calls.append((row, partial(preparation_calls.create, self.driver, pull)))
        return calls

    def release(self) -> list[tuple[Prepull, Call]]:
        """Releases the objects whose uids are stored."""
        rows = live_prepulls(self.cluster.id, Phase.CREATED)
        values, closed = clusters.queries.opened_secrets({one for row in rows for one in versions_of(row.secrets)})
        pulls = [(row, self._pull(row, values=values, closed=frozenset(closed))) for row in rows]
        return [(row, partial(preparation_calls.release, self.driver, pull)) for row, pull in pulls]

    def read(self) -> list[tuple[Prepull, Call]]:
        """Reads how the released ones stand."""
        pulls = [(row, self._pull(row)) for row in live_prepulls(self.cluster.id, Phase.RELEASED)]
        return [(row, partial(pull_calls.read, self.driver, pull)) for row, pull in pulls]

    def remove(self) -> list[tuple[Prepull, Call]]:
        """Deletes the objects of those that have ended."""
        pulls = [(row, self._pull(row)) for row in live_prepulls(self.cluster.id, Phase.ENDING)]
        return [(row, partial(preparation_calls.remove, self.driver, pull)) for row, pull in pulls]

    def _pull(self, row: Prepull, tolerations: Sequence[Mapping[str, str]] = (), **secrets: Any) -> Pull:
        identity = identity_of(row)
        return Pull(
            image=row.image,
            node=row.node,
            identity=identity,
            cluster_identity=self.cluster.identity,
            uid=row.uid,
            tolerations=tolerations,
            promised=row.secrets,
            policies=isolation.namespace_policies(identity.namespace, identity.install, settings.JOB_EGRESS),
            lasted=since(row.released_at or row.begun_at),
            **secrets,
        )


def record(row: Prepull, result: object) -> None:
    """Writes what a call returned, if the pull is still as it was when the call was made."""
    if isinstance(result, Gone):
        ours = Prepull.objects.filter(id=row.id, object_id=row.object_id, phase=row.phase)
        ours.update(**IDLE, secrets={})
    elif (verdict := record_step(row, result)) is not None:
        _end(row, verdict)
    elif isinstance(result, Failed) and row.phase != Phase.ENDING and since(row.begun_at) > 2 * DEADLINE:
        _end(row, too_late(result.reason))


def _end(row: Prepull, verdict: Verdict) -> None:
    """The pull's outcome, and that its object has to go."""
    is_pulled = verdict.outcome == Outcome.PULLED
    said: dict[str, Any] = {
        "phase": Phase.ENDING,
        "outcome": verdict.outcome,
        "message": verdict.message,
        "ended_at": Now(),
    }
    if is_pulled:
        said |= {"failures": 0, "pulls": F("pulls") + 1, "pulled_at": Now(), "message": ""}
    else:
        said["failures"] = F("failures") + 1
    with transaction.atomic():
        if not Prepull.objects.filter(id=row.id, object_id=row.object_id, phase=row.phase).update(**said):
            return
        if is_pulled:
            remember_proven([(row.policy.tenant_id, normal_name(row.image))])
