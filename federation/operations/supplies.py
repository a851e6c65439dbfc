"""What an attempt is promised besides nodes when it is placed: parts of volumes, network attachments, and secrets."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from clusters.engine.networks import Networks
from clusters.engine.secrets import Keyring
from clusters.engine.storages import Shelves
from federation.locks import QueuedJob
from federation.queries.networks import networks_of, promised_networks
from federation.queries.secrets import keyring_for, promised_report, promised_secrets
from federation.queries.storages import promised_mounts, storages_of
from placement.values.model import JobRequest


class Supplies(NamedTuple):
    """What the pods of one set get, as their objects' rows keep it."""

    mounts: list[dict[str, Any]]
    networks: list[dict[str, Any]]
    secrets: dict[str, Any]


class Stock(NamedTuple):
    """The storages, networks and secrets that jobs name, as they are when their placements are applied."""

    shelves: Shelves
    networks: Networks
    keyring: Keyring

    @classmethod
    def of(cls, requests: Sequence[JobRequest]) -> "Stock":
        """Those that the requests name. No query if they name none."""
        return cls(storages_of(requests), networks_of(requests), keyring_for(requests))

    def supplies(self, job: QueuedJob, spec: Mapping[str, Any], cluster_id: UUID) -> list[Supplies] | None:
        """What the pods of each set get on the cluster; None if something that they name is no longer there for the tenant."""
        found = [self._of_pods(one, job, cluster_id, reports=bool(spec.get("reports"))) for one in spec["pod_sets"]]
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else None

    def _of_pods(self, pods: Mapping[str, Any], job: QueuedJob, cluster_id: UUID, *, reports: bool) -> Supplies | None:
        mounts = promised_mounts(pods, cluster_id, job.tenant_id, job.tenant_path, self.shelves)
        networks = promised_networks(pods, cluster_id, job.tenant_path, self.networks)
        secrets = promised_secrets(pods, job.tenant_path, self.keyring)
        if mounts is None or networks is None or secrets is None:
            return None
        return Supplies(mounts, networks, secrets | (promised_report() if reports else {}))
