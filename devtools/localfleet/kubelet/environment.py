"""A container's environment variables, and `$(VAR)` in its command, as Kubernetes defines them."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from clusters.engine.quantities import parse

REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
RESOURCE = re.compile(r"(limits|requests)\.(.+)")

Reader = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""Reads the data of the Secret or ConfigMap (its plural, its name) of the pod's namespace; None if it does not exist."""


class Unresolvable(Exception):
    """A variable refers to something that does not exist."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a pod can learn about itself."""

    manifest: Mapping[str, Any]
    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]

    def field(self, path: str) -> str:
        """The text of a `fieldRef`."""
        metadata, spec = self.manifest["metadata"], self.manifest["spec"]
        if found := SUBSCRIPT.fullmatch(path):
            return str(metadata.get(found[1], {}).get(found[2], ""))
        simple = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata["namespace"],
            "metadata.uid": metadata["uid"],
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "status.hostIP": self.host_ip,
            "status.hostIPs": self.host_ip,
            "status.podIP": self.pod_ip,
            "status.podIPs": self.pod_ip,
        }
        if path in ("metadata.labels", "metadata.annotations"):
            pairs = metadata.get(path.partition(".")[2], {})
            return "\n".join(f'{key}="{_quoted(value)}"' for key, value in sorted(pairs.items()))
        if path not in simple:
            raise Unresolvable(f"field {path} is not supported")
        return str(simple[path])

    def resource(self, reference: Mapping[str, Any], container: str) -> str:
        """The text of a `resourceFieldRef`: in units of its divisor, rounded up; the node's amount if there is no limit."""
        name = reference.get("containerName") or container
        containers = [*self.manifest["spec"]["containers"], *self.manifest["spec"].get("initContainers", ())]
        found = RESOURCE.fullmatch(reference["resource"])
        spec = next((entry for entry in containers if entry["name"] == name), None)
        if spec is None or found is None:
            raise Unresolvable(f"resource {reference['resource']} of container {name}")
        amounts = spec.get("resources", {})
        amount = amounts.get(found[1], {}).get(found[2]) or amounts.get("limits", {}).get(found[2])
        if amount is None and found[1] == "limits":
            amount = self.allocatable.get(found[2])
        divisor = parse(str(reference.get("divisor", "1"))) or Fraction(1)
        return str(ceil(parse(str(amount or "0")) / divisor))


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`text` with `$(VAR)` replaced; unknown names stay, and `$$` is a dollar sign."""

    def replacement(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return REFERENCE.sub(replacement, text)


async def variables_of(
    container: Mapping[str, Any], facts: Facts, read: Reader, image: Mapping[str, str]
) -> dict[str, str]:
    """All variables of the container on top of its image's. Raises Unresolvable."""
    found = dict(image)
    for source in container.get("envFrom", ()):
        for kind, field in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if reference := source.get(field):
                data = await _data(kind, reference, read)
                found |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
    for entry in container.get("env", ()):
        value = await _value(entry, container["name"], facts, read, found)
        if value is not None:
            found[entry["name"]] = value
    return found


async def _value(
    entry: Mapping[str, Any], container: str, facts: Facts, read: Reader, before: Mapping[str, str]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value", ""), before)
    if reference := source.get("fieldRef"):
        return facts.field(reference["fieldPath"])
    if reference := source.get("resourceFieldRef"):
        return facts.resource(reference, container)
    for kind, field in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if reference := source.get(field):
            data = await _data(kind, reference, read)
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            raise Unresolvable(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise Unresolvable(f"variable {entry['name']}: its source is not supported")


async def _data(kind: str, reference: Mapping[str, Any], read: Reader) -> Mapping[str, bytes]:
    data = await read(kind, reference["name"])
    if data is None and not reference.get("optional"):
        raise Unresolvable(f'{kind.removesuffix("s")} "{reference["name"]}" not found')
    return data or {}


def command_of(container: Mapping[str, Any], variables: Mapping[str, str]) -> Sequence[str]:
    """The command with its arguments, expanded; empty if the container leaves it to its image."""
    return [expand(word, variables) for word in (*container.get("command", ()), *container.get("args", ()))]
