"""The Services of a simulated cluster, and which pods started without the one that gives them their name."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.drivers import AlreadyExists, NotThere, ServiceSeen
from federation.engine.names import LABEL_ATTEMPT

from .objects import Key, Pod


@dataclass(slots=True)
class Service:
    """A Service and the uids of its owners that still exist."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    owners: set[str]
    selector: dict[str, str]

    def seen(self) -> ServiceSeen:
        """The port's view."""
        owners = tuple(sorted(self.owners))
        return ServiceSeen(
            self.namespace,
            self.name,
            self.uid,
            self.labels,
            owners,
            self.selector,
            is_headless=True,
            is_terminating=False,
        )


@dataclass(slots=True)
class Services:
    """All Services of one cluster."""

    new_uid: Callable[[], str]
    known: dict[Key, Service] = field(default_factory=dict)
    foreign: dict[Key, str] = field(default_factory=dict)
    """The uids of Services that strangers made with names of ours."""
    names_taken: set[Key] = field(default_factory=set)
    """Names that they ever took: a backup that is put back may take their Services away."""
    unnamed: set[str] = field(default_factory=set)
    """Attempts of which a pod started while the Service did not exist that gives it its name."""

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Service."""
        metadata, selector = manifest["metadata"], manifest["spec"]["selector"]
        key = (metadata["namespace"], metadata["name"])
        if key in self.known:
            raise AlreadyExists(f'services "{key[1]}" already exists', status=409)
        owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
        self.known[key] = Service(*key, self.new_uid(), dict(metadata["labels"]), owners, dict(selector))

    def show(self, namespace: str, name: str) -> ServiceSeen:
        """The Service of that name, or NotThere."""
        service = self.known.get((namespace, name))
        if service is None:
            raise NotThere(f'services "{name}" not found', status=404)
        return service.seen()

    def take_name(self, namespace: str, name: str) -> bool:
        """Whether a stranger makes a Service of this name now: there is none."""
        key = (namespace, name)
        if key in self.known:
            return False
        self.known[key] = Service(*key, self.new_uid(), {}, set(), {"app": "theirs"})
        self.foreign[key] = self.known[key].uid
        self.names_taken.add(key)
        return True

    def collect(self, alive: Collection[str]) -> None:
        """The garbage collector's step: a Service goes with the last of its owners."""
        for key, service in list(self.known.items()):
            if service.owners:
                service.owners &= set(alive)
                if not service.owners:
                    del self.known[key]

    def put_back(self, known: dict[Key, Service]) -> None:
        """An earlier state is restored."""
        self.known = known
        self.foreign = {key: uid for key, uid in self.foreign.items() if key in known and known[key].uid == uid}

    def note_start(self, pod: Pod) -> None:
        """Notes the attempt of a pod that no name leads to."""
        subdomain, attempt_id = pod.spec.get("subdomain"), pod.labels.get(LABEL_ATTEMPT, "")
        service = self.known.get((pod.namespace, subdomain)) if subdomain else None
        if subdomain and (service is None or service.selector.get(LABEL_ATTEMPT) != attempt_id):
            self.unnamed.add(attempt_id)
