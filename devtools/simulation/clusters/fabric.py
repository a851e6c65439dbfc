"""What a simulated cluster knows of network attachments: which its admission policy allows the gateway, which definitions it lacks,
and what pods started with.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.drivers import Refused
from federation.engine.objects.networks import ANNOTATION

from .objects import Job


@dataclass(slots=True)
class Declared:
    """A network as an operator wants it, from when they asked. It may have been so since; when they knew that, nothing else was."""

    name: str
    attachment: str
    """Empty: it is withdrawn."""
    team: str
    """The name of the team that it serves; empty: all."""
    from_us: int
    known_us: int | None = None


@dataclass(slots=True)
class Fabric:
    """See the module."""

    declared: list[Declared] = field(default_factory=list)
    """Of the cluster, in the gateway."""
    allowed: frozenset[str] = frozenset()
    """The attachments that the policy lists. Only the gateway's account is bound to it."""
    missing: set[str] = field(default_factory=set)
    """Attachments of which the definition does not exist: pods with one wait."""
    refused: set[str] = field(default_factory=set)
    """The names of Jobs that the policy refused."""
    started: dict[str, set[str]] = field(default_factory=dict)
    """What pods of the gateway's Jobs started with, by the name of the Job: all attachments of each, in their order."""

    def admit(self, manifest: Mapping[str, Any]) -> None:
        """Raises Refused if the Job asks for an attachment that the policy does not list."""
        asked = attachments_of(manifest["spec"]["template"])
        if set(asked) - self.allowed:
            self.refused.add(str(manifest["metadata"]["name"]))
            raise Refused("ValidatingAdmissionPolicy denied request: attachments that are not listed here", status=403)

    def lacks(self, job: Job) -> bool:
        """Whether a definition is missing that its pods need."""
        return bool(self.missing) and not self.missing.isdisjoint(attachments_of(job.template))

    def note_start(self, job: Job) -> None:
        """A pod of it starts."""
        self.started.setdefault(job.name, set()).add(",".join(attachments_of(job.template)))

    def begins(self, name: str, attachment: str, team: str, now_us: int) -> Declared:
        """An operator asks for this now, perhaps again because the first answer never came."""
        last = next((one for one in reversed(self.declared) if one.name == name), None)
        if last is None or last.known_us is not None or (last.attachment, last.team) != (attachment, team):
            last = Declared(name, attachment, team, now_us)
            self.declared.append(last)
        return last

    def may_have_been(self, name: str, attachment: str, team: str, from_us: int, to_us: int) -> bool:
        """Whether jobs of the team may have seen the network so at some time between these."""
        history = [one for one in self.declared if one.name == name]
        for number, one in enumerate(history):
            later = [other.known_us for other in history[number + 1 :] if other.known_us is not None]
            was_there = one.from_us <= to_us and min(later, default=from_us) >= from_us
            if was_there and one.attachment == attachment and one.team in ("", team):
                return True
        return False

    def apply(self, attachments: Collection[str]) -> None:
        """Its administrator applies the policy that the gateway offers for download."""
        self.allowed = frozenset(attachments)


def attachments_of(template: Mapping[str, Any]) -> list[str]:
    """What the annotation of a pod template asks for."""
    text = str(template["metadata"].get("annotations", {}).get(ANNOTATION, ""))
    return text.split(",") if text else []
