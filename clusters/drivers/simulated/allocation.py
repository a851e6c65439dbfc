"""A simulated cluster's allocator of claimable devices. It reads expressions only in the form that the
gateway writes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import msgspec

from clusters.drivers.port import Refused
from clusters.engine.claimable import DeviceSeen
from clusters.engine.gpu_facts import version_of
from clusters.engine.quantities import parse

from .objects import Claim, Pod
from .store import Store

DEVICE_CLASSES = frozenset(
    {"gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com", "gpu.intel.com", "gaudi.intel.com", "tpu.google.com"}
)
_STRING = r'"(?:[^"\\]|\\.)*"'
_TEST = re.compile(
    rf"(?P<driver>device\.driver == (?P<name>{_STRING}))"
    rf"|(?P<present>{_STRING}) in device\.(attributes|capacity)\[{_STRING}\]"
    rf"|device\.attributes\[{_STRING}\]\.(?P<key>\w+) == (?P<value>{_STRING})"
    rf"|device\.attributes\[{_STRING}\]\.(?P<one>\w+) in (?P<of>\[{_STRING}(, {_STRING})*\])"
    rf"|device\.attributes\[{_STRING}\]\.(?P<newer>\w+)\.compareTo\(semver\((?P<than>{_STRING})\)\) >= 0"
    rf"|device\.capacity\[{_STRING}\]\.memory\.compareTo\(quantity\((?P<size>{_STRING})\)\) >= 0"
)
_Key = tuple[str, str, str]
_Test = Callable[[str, DeviceSeen], bool]
"""Of a device of a driver."""


def check_template(manifest: Mapping[str, Any]) -> None:
    """Raises Refused for a request that this allocator cannot read."""
    for request in _requests(manifest):
        for expression in _expressions(request):
            list(_tests(expression))


def claims_on(store: Store, pod: Pod, node: str) -> list[Claim] | None:
    """The claims that the pod would have on the node, allocated; None if there are too few devices or no template."""
    wanted = [entry["resourceClaimTemplateName"] for entry in pod.spec.get("resourceClaims", [])]
    if not wanted:
        return []
    taken = {device for claim in store.claims() for device in claim.devices}
    there = _devices_of(store, node)
    claims = []
    for name in wanted:
        template = store.template(pod.namespace, name)
        if template is None:
            return None
        devices: list[_Key] = []
        for request in _requests(template):
            fitting = [key for key, seen in there.items() if key not in taken and _matches(request, key[0], seen)]
            if len(fitting) < request["count"]:
                return None
            devices += fitting[: request["count"]]
            taken.update(devices)
        labels = template["spec"].get("metadata", {}).get("labels", {})
        uid = str(uuid4())
        claims.append(Claim(pod.namespace, f"{pod.name}-{uid[:5]}", uid, labels, tuple(devices), pod.uid))
    return claims


def free(store: Store, pod: Pod) -> None:
    """Removes the claims that were made for a pod."""
    if pod.spec.get("resourceClaims"):
        for claim in store.claims_of(pod.uid):
            store.remove(claim)


def _devices_of(store: Store, node: str) -> dict[_Key, DeviceSeen]:
    """The untainted devices of a node, from pools of one slice each."""
    return {
        (found.published.driver, found.published.pool, seen.name): seen
        for found in store.slices()
        for seen in found.published.devices
        if (found.published.node or seen.node) == node and not seen.is_tainted
    }


def _requests(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [request["exactly"] for request in template["spec"]["spec"]["devices"]["requests"]]


def _expressions(request: Mapping[str, Any]) -> list[str]:
    return [selector["cel"]["expression"] for selector in request.get("selectors", [])]


def _matches(request: Mapping[str, Any], driver: str, seen: DeviceSeen) -> bool:
    return all(test(driver, seen) for expression in _expressions(request) for test in _tests(expression))


def _tests(expression: str) -> Iterator[_Test]:
    """What a device must be. Whether it has an attribute needs no test: here a missing one is only another value."""
    for part in expression.split(" && "):
        found = _TEST.fullmatch(part)
        if found is None:
            raise Refused("spec.devices.requests: a simulated cluster cannot read this expression", status=422)
        if not found["present"]:
            yield _test_of(found)


def _test_of(found: re.Match[str]) -> _Test:
    key, value = next(pair for pair in _PAIRS if found[pair[1]] is not None)
    wanted = msgspec.json.decode(found[value])
    name = found[key] if key else ""
    match value:
        case "name":
            return lambda driver, _: driver == wanted
        case "value":
            return lambda _, seen: seen.attributes.get(name) == wanted
        case "of":
            return lambda _, seen: seen.attributes.get(name) in wanted
        case "than":
            return lambda _, seen: version_of(seen.attributes.get(name, "")) >= version_of(wanted)
        case _:
            return lambda _, seen: bool(seen.memory) and parse(seen.memory) >= parse(wanted)


_PAIRS = (("", "name"), ("key", "value"), ("one", "of"), ("newer", "than"), ("", "size"))
"""The groups of each test: the attribute's name, if it has one, and the value."""
