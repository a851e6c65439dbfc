"""The secrets that a pod set uses, by name: read from untrusted JSON, and written in the normal form.

A spec names secrets and where their values go; it never has a value.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from clusters.engine.secrets import Kind
from clusters.engine.storages import MOST_PATH
from federation.engine import names

from .mounts import CLOSED, CONTAINER_PATH, is_container_path, is_inside
from .reading import Fields
from .spec import DNS_LABEL, MAX_SECRETS, PodSet, SecretUse

SECRET_FIELDS = frozenset(["secret", "env", "file"])
OPEN = "/run/secrets"
"""The one place below the closed directories where files of secrets may be."""


def read_secrets(fields: Fields, variables: Collection[str], mounted: Sequence[str]) -> tuple[SecretUse, ...]:
    """The uses of secrets by a pod set, in their order; the caller checks that the secrets exist. `variables` and
    `mounted` are the names and paths that the pod set has already.
    """
    found: list[SecretUse] = []
    for index, value in enumerate(fields.array("secrets", most=MAX_SECRETS)):
        given = Fields(value, f"{fields.at('secrets')}[{index}]", fields.faults, SECRET_FIELDS)
        secret = given.checked("secret", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)
        has_env, has_file = (given.values.get(name) is not None for name in ("env", "file"))
        if has_env == has_file:
            given.fault("env", "conflict" if has_env else "required", "give either `env` or `file`")
            continue
        env = _read_env(given, [*variables, *(use.env for use in found)]) if has_env else ""
        file = _read_file(given, [*mounted, *(use.file for use in found if use.file)]) if has_file else ""
        found.append(SecretUse(secret, env, file))
    return tuple(found)


def read_pull_secret(fields: Fields) -> str:
    """The secret by which the image is pulled; empty for none."""
    if fields.values.get("pull_secret") in (None, ""):
        return ""
    return fields.checked("pull_secret", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL)


def secrets_json(pod_set: PodSet) -> dict[str, Any]:
    """The members of the normal form, only those that are set."""
    uses = [{"secret": one.secret, **({"env": one.env} if one.env else {"file": one.file})} for one in pod_set.secrets]
    pull = {"pull_secret": pod_set.pull_secret} if pod_set.pull_secret else {}
    return {**({"secrets": uses} if uses else {}), **pull}


def secrets_named(pod_set: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The secrets that a stored pod set names, each with the kind that it must have."""
    found = [(str(use["secret"]), Kind.VALUE.value) for use in pod_set.get("secrets", ())]
    return found + ([(str(pod_set["pull_secret"]), Kind.REGISTRY.value)] if "pull_secret" in pod_set else [])


def _read_env(given: Fields, taken: Collection[str]) -> str:
    before = len(given.faults.found)
    name = given.text("env", most_bytes=128)
    if len(given.faults.found) == before:
        fault = names.environment_fault(name)
        if fault is not None:
            given.fault("env", *fault)
        elif name in taken:
            given.fault("env", "duplicate", "another variable has this name")
    return name


def _read_file(given: Fields, taken: Sequence[str]) -> str:
    before = len(given.faults.found)
    path = given.checked("file", is_container_path, CONTAINER_PATH, most_bytes=MOST_PATH)
    if len(given.faults.found) == before:
        is_open = path != OPEN and is_inside(path, OPEN)
        if any(is_inside(path, closed) for closed in CLOSED) and not is_open:
            given.fault(
                "file", "not_allowed", f"no file of a secret can be in {', '.join(CLOSED)}, except below {OPEN}"
            )
        elif other := next((one for one in taken if is_inside(path, one) or is_inside(one, path)), ""):
            given.fault("file", "duplicate", f"overlaps with {other}")
    return path
