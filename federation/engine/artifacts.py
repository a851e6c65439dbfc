"""The artifacts of a job: files that it declares, and that its runs announce by reference, digest and size.

The gateway never reads what a reference names. Every reference is plain: it names nothing outside the place that the job
declared, and has no room for a credential.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.engine.storages import MOST_PATH

MOST_ARTIFACTS = 32
MOST_URL = 512
MOST_REFERENCE = max(MOST_URL, MOST_PATH) + 1 + MOST_PATH
MOST_SIZE_BYTES = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
_NAMES = r"[A-Za-z0-9._=+@,~-]+"
PATH_PATTERN = rf"^{_NAMES}(/{_NAMES})*\Z"
URL_PATTERN = rf"^(s3|gs|az|https)://[A-Za-z0-9][A-Za-z0-9._-]{{0,252}}(:[0-9]{{1,5}})?(/{_NAMES})+\Z"
DOTS_PATTERN = r"(^|/)\.{1,2}(/|$)"
"""`.` or `..` as a name in a path or URL."""
DIGEST_PATTERN = r"^[0-9a-f]{64}\Z"
URL = "an s3, gs, az or https URL with a path of plain names, at most 512 characters: no user, query, fragment, '.' or '..'"
DIGEST = "the SHA-256 digest: 64 lower-case hexadecimal digits"


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a job says that it will write: at `path` below the tenant's part of a storage, or at a URL of an object store."""

    name: str
    storage: str = ""
    path: str = ""
    url: str = ""
    is_required: bool = False


def is_object_url(text: str) -> bool:
    """Whether this is a plain URL of an object store, without any place for a credential."""
    return len(text) <= MOST_URL and re.match(URL_PATTERN, text) is not None and re.search(DOTS_PATTERN, text) is None


def is_digest(text: str) -> bool:
    """Whether this is a SHA-256 digest in hexadecimal."""
    return re.match(DIGEST_PATTERN, text) is not None


def base_of(declared: Mapping[str, Any]) -> str:
    """The reference of an artifact in a stored spec: a path below the tenant's part of its storage, or a URL."""
    return str(declared["url"] if "url" in declared else declared["path"])


def reference_below(declared: Mapping[str, Any], path: str) -> str:
    """The reference of what was written at this path below it; empty: of itself."""
    return f"{base_of(declared)}/{path}" if path else base_of(declared)


def unannounced(declared: Sequence[Mapping[str, Any]], announced: Iterable[str]) -> list[str]:
    """The names of required artifacts that a run did not announce, in the order of the spec."""
    known = set(announced)
    return [str(one["name"]) for one in declared if one["required"] and one["name"] not in known]


def unannounced_text(names: Sequence[str]) -> str:
    """What the end of a job says about required artifacts that its run did not announce."""
    what = "the required artifact" if len(names) == 1 else "the required artifacts"
    return f"Its program succeeded, but did not announce {what} {', '.join(names)}."
