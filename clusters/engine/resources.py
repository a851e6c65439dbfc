"""Resources besides CPU, memory and GPUs that an installation lets jobs request: extended resources by an allowlist, and
huge pages.

Amounts are whole numbers: units of an extended resource, MiB of huge pages. Devices that flavors count are never on the
list, so that no job gets them beside its quota.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from .quantities import MEBIBYTES, PLAIN, Implausible, Unit, asked, offered

HUGE_PAGES_MIB: Mapping[str, int] = {"hugepages-2Mi": 2, "hugepages-1Gi": 1024}
"""The sizes of huge pages that Linux offers on the usual hosts."""
MOST_NAMES = 64
RESOURCE_NAME = "a name with a domain, such as rdma/hca or vpc.amazonaws.com/efa, or hugepages-2Mi or hugepages-1Gi"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_EXTENDED = re.compile(rf"(?P<domain>{_LABEL}(\.{_LABEL})*)/[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?")
_LONGEST_DOMAIN = 253 - len("requests.")
_CLUSTERS_OWN = re.compile(r"(.*\.)?kubernetes\.io|(.*\.)?k8s\.io|requests\..*")
_DEVICES_OF_FLAVORS = re.compile(
    r"nvidia\.com/(gpu|gpu\.shared|mig-.*)|amd\.com/.*|google\.com/tpu|gpu\.intel\.com/.*|habana\.ai/.*"
)


def name_fault(name: str) -> str:
    """Why a resource cannot be on the list; empty if it can."""
    if name in HUGE_PAGES_MIB:
        return ""
    found = _EXTENDED.fullmatch(name)
    if found is None or len(found["domain"]) > _LONGEST_DOMAIN:
        return f"is not {RESOURCE_NAME}"
    if _CLUSTERS_OWN.fullmatch(found["domain"]):
        return "belongs to Kubernetes itself"
    if _DEVICES_OF_FLAVORS.fullmatch(name):
        return "is a device of a flavor: jobs request it as `gpu`, which quotas count"
    return ""


def unit_of(name: str) -> Unit:
    """The unit in which amounts of the resource are counted."""
    return MEBIBYTES if name in HUGE_PAGES_MIB else PLAIN


def amounts_offered(allocatable: Mapping[str, str], allowed: Collection[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """What a node offers of the allowed resources, and its implausible claims as text; amounts of 0 are omitted."""
    found: dict[str, int] = {}
    problems: list[str] = []
    for name in sorted(allowed):
        if name in allocatable:
            try:
                found[name] = offered(allocatable[name], unit_of(name))
            except Implausible as error:
                problems.append(f"{name}: {error}")
    return {name: amount for name, amount in found.items() if amount}, tuple(problems)


def huge_pages_used(requests: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    """The MiB of huge pages that a pod requests, rounded up; an implausible request counts as nothing."""
    for name in HUGE_PAGES_MIB.keys() & requests.keys():
        try:
            yield name, asked(requests[name], MEBIBYTES)
        except Implausible:
            continue


def amount_text(name: str, amount: int) -> str:
    """An amount as Kubernetes writes it: `1Gi` of huge pages, `2` devices."""
    if name not in HUGE_PAGES_MIB:
        return str(amount)
    return f"{amount // 1024}Gi" if amount % 1024 == 0 else f"{amount}Mi"


def told(amounts: Iterable[tuple[str, int]]) -> str:
    """Amounts for users: `1 rdma/hca and 2Gi of hugepages-1Gi`."""
    texts = [f"{amount_text(name, amount)} {'of ' if name in HUGE_PAGES_MIB else ''}{name}" for name, amount in amounts]
    return " and ".join([*([", ".join(texts[:-1])] if texts[1:] else []), *texts[-1:]])
