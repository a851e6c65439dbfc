"""Names on the cluster, and the grammars of names that users choose."""

import base64
import re
from collections.abc import Mapping
from uuid import UUID

PREFIX = "swy-"
MAX_LABEL = 63
MAX_DNS_NAME = 253
LABEL_INSTALL = "switchyard.dev/install"
LABEL_TENANT = "switchyard.dev/tenant"
LABEL_JOB = "switchyard.dev/job"
LABEL_ATTEMPT = "switchyard.dev/attempt"
LABEL_SPEC_HASH = "switchyard.dev/spec-hash"
LABEL_PREPARATION = "switchyard.dev/preparation"
"""What a Job of ours prepares that is no attempt of a job: its other labels name what asked for it."""
SIMULATED_SECONDS = "sim.switchyard.dev/run-seconds"
SIMULATED_EXIT_CODE = "sim.switchyard.dev/exit-code"
SIMULATED_ENDING = "sim.switchyard.dev/ending"
SIMULATED_WAITING = "sim.switchyard.dev/waiting"
SIMULATED_FAILING_STEP = "sim.switchyard.dev/failing-step"
SIMULATED = (SIMULATED_SECONDS, SIMULATED_EXIT_CODE, SIMULATED_ENDING, SIMULATED_WAITING, SIMULATED_FAILING_STEP)
"""Labels that say how simulated pods run."""
RESERVED_LABEL_DOMAINS = ("kubernetes.io", "k8s.io", "kueue.x-k8s.io", "switchyard.dev")

dns_label = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch
"""Matches an RFC 1123 label: the names of jobs, pod sets and clusters."""
gpu_model = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}").fullmatch
mig_profile = re.compile(r"[1-9]g\.[1-9][0-9]{0,2}gb([.+]me)?").fullmatch
region_pattern = re.compile(r"[a-z0-9*]([a-z0-9*-]{0,62})").fullmatch
environment_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}").fullmatch
label_value = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?").fullmatch
_label_name = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?").fullmatch
_domain = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*").fullmatch

_HOST = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_image = re.compile(
    rf"(?:(?P<host>{_HOST}(?:\.{_HOST})*)(?P<port>:[0-9]{{1,5}})?/)?"
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
).fullmatch
_path_part = re.compile(_PART).fullmatch
_bare_number = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+").fullmatch

_ENVIRONMENT_REFUSED = frozenset(
    {"NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_DISABLE_REQUIRE"}
)
_ENVIRONMENT_PREFIXES_REFUSED = ("LD_", "SWITCHYARD_", "NVIDIA_MIG_", "KUBERNETES_")


def object_name(attempt_id: UUID, position: int) -> str:
    """The Job of an attempt's pod set: `swy-` + the id in base32, `-{position}` after the first."""
    code = base64.b32encode(attempt_id.bytes).decode().rstrip("=").lower()
    return f"{PREFIX}{code}-{position}" if position else f"{PREFIX}{code}"


def namespace_of(tenant_path: str, tenant_id: UUID) -> str:
    """A tenant's namespace: `swy-{its name, cut}-{the last 8 hex of its id}` (the first 8 are a time, shared by
    siblings).
    """
    tail = f"-{tenant_id.hex[-8:]}"
    slug = tenant_path.rpartition("/")[2][: MAX_LABEL - len(PREFIX) - len(tail)].rstrip("-")
    return f"{PREFIX}{slug}{tail}"


def label_key_fault(key: str, *, allow_simulation: bool) -> tuple[str, str] | None:
    """The fault of a label key that a user chose, as code and detail."""
    domain, slash, name = key.rpartition("/")
    if not _label_name(name) or (slash and (len(domain) > MAX_DNS_NAME or not _domain(domain))):
        return (
            "bad_format",
            "a label key is a name of up to 63 letters, digits, '-', '_', '.', after an optional DNS prefix and '/'",
        )
    if allow_simulation and key in SIMULATED:
        return None
    if any(domain == taken or domain.endswith(f".{taken}") for taken in RESERVED_LABEL_DOMAINS):
        return "reserved_prefix", "this prefix is reserved for Kubernetes, Kueue and the gateway itself"
    return None


def environment_fault(name: str) -> tuple[str, str] | None:
    """The fault of an environment variable's name that a user chose."""
    if not environment_name(name):
        return "bad_format", "letters, digits and '_', not starting with a digit, at most 128"
    if name in _ENVIRONMENT_REFUSED or name.startswith(_ENVIRONMENT_PREFIXES_REFUSED):
        return "not_allowed", "this variable steers the loader, the GPU runtime or the gateway and cannot be set"
    return None


def id_in(labels: Mapping[str, str], key: str) -> UUID | None:
    """The id in a label of ours; None if the label is missing or is not an id."""
    try:
        return UUID(labels.get(key, ""))
    except ValueError:
        return None


def image_fault(image: str, *, require_digest: bool) -> tuple[str, str] | None:
    """The fault of an image reference: grammar, a registry given by IP address or loopback name, or no digest."""
    parts = _image(image)
    if parts is None:
        return "bad_format", "write the image as registry/path:tag or registry/path@sha256:digest"
    host = parts["host"] or ""
    names_registry = "." in host or parts["port"] or host.lower() == "localhost"
    if host and not names_registry and not _path_part(host):
        return "bad_format", "repository names are lower case"
    if names_registry and (host.lower() == "localhost" or _bare_number(host.rpartition(".")[2])):
        return "not_allowed", "give the registry's DNS name, not an address"
    if require_digest and parts["digest"] is None:
        return "digest_required", "pin the image by digest, @sha256:…"
    return None
