"""The secrets that jobs name, looked up outside the engine: whether their tenant has them, which version an attempt is
promised, and for dispatch the values.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clusters.engine.secrets import Keyring, Kind, meant_secret
from clusters.queries import known_secrets, opened_secrets, signing_keys
from federation.engine.lifecycle import AttemptState
from federation.engine.objects.job_secrets import SecretVersion, secret_name
from federation.engine.objects.report_tokens import report_token
from federation.queries.claimed_attempts import ClaimedAttempt
from foundation.ids import new_id
from foundation.problems import FieldError, NotFound
from placement.values.model import JobRequest


def keyring_for(requests: Sequence[JobRequest]) -> Keyring:
    """The secrets that these requests name, as they are now. No query if they name none."""
    return known_secrets({name for request in requests for name, _ in request.constraints.secrets})


def with_secrets(requests: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
    """The requests, each with the first secret that its tenant lacks. Such a job fits nowhere until there is one."""
    keyring = keyring_for(requests)
    return tuple(_with_secrets(request, keyring) if request.constraints.secrets else request for request in requests)


def _with_secrets(request: JobRequest, keyring: Keyring) -> JobRequest:
    missing = _missing(request, keyring)
    if not missing:
        return request
    constraints = replace(request.constraints, lacks_secret=missing[0])
    return replace(request, constraints=constraints, shape=f"{request.shape} lacks secret {missing[0]}")


def _missing(request: JobRequest, keyring: Keyring) -> list[str]:
    named = request.constraints.secrets
    return [name for name, kind in named if meant_secret(keyring, request.tenant_path, name, kind) is None]


def refuse_unknown_secrets(request: JobRequest) -> None:
    """Returns if the tenant has all secrets that its job names; else NotFound with each missing one (a foreign one
    looks the same).
    """
    errors = [
        FieldError(
            f"secrets.{name}", "not_found", "this tenant has no secret of that name and kind, nor has any above it"
        )
        for name in _missing(request, keyring_for([request]))
    ]
    if errors:
        raise NotFound("The job names a secret that this tenant does not have.", errors=errors)


def promised_report() -> dict[str, Any]:
    """The name that the Secret with a pod set's token for reports will have."""
    return {"report": {"object": secret_name(new_id())}}


def promised_secrets(pod_set: Mapping[str, Any], tenant_path: str, keyring: Keyring) -> dict[str, Any] | None:
    """The versions that a pod set's Secrets will have, and the names of these; None if its tenant lacks a secret."""
    keys: dict[str, str] = {}
    uses: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for use in pod_set.get("secrets", ()):
        secret = meant_secret(keyring, tenant_path, use["secret"], Kind.VALUE)
        if secret is None:
            return None
        key = keys.setdefault(use["secret"], f"s{len(keys)}")
        uses.append({**use, "key": key, "id": str(secret.id), "version": secret.version})
    if uses:
        found |= {"object": secret_name(new_id()), "uses": uses}
    if pull := pod_set.get("pull_secret"):
        secret = meant_secret(keyring, tenant_path, pull, Kind.REGISTRY)
        if secret is None:
            return None
        named = {"secret": pull, "id": str(secret.id), "version": secret.version}
        found["pull"] = {**named, "object": secret_name(new_id())}
    return found


def with_opened_secrets(attempts: Sequence[ClaimedAttempt]) -> list[ClaimedAttempt]:
    """The attempts, those that are to be created with the values of their secrets. One query, if any has secrets.

    A version that was replaced or deleted since the placement has no value, and neither has one that cannot be opened.
    """
    attempts = [_with_report_token(attempt) for attempt in attempts]
    wanted: set[SecretVersion] = set()
    for attempt in attempts:
        if _is_to_be_created(attempt):
            wanted |= attempt.secret_versions
    if not wanted:
        return attempts
    values, closed = opened_secrets(wanted)
    return [_opened(attempt, values, closed) if _is_to_be_created(attempt) else attempt for attempt in attempts]


def _with_report_token(attempt: ClaimedAttempt) -> ClaimedAttempt:
    if not attempt.may_report or not _is_to_be_created(attempt):
        return attempt
    return replace(attempt, report_token=report_token(signing_keys()[0], attempt.id).encode())


def _is_to_be_created(attempt: ClaimedAttempt) -> bool:
    return attempt.state == AttemptState.RESERVED and not attempt.must_stop


def _opened(
    attempt: ClaimedAttempt, values: Mapping[SecretVersion, bytes], closed: Collection[SecretVersion]
) -> ClaimedAttempt:
    own = attempt.secret_versions
    return replace(
        attempt,
        secret_values={version: values[version] for version in own if version in values},
        has_closed_secret=not own.isdisjoint(closed),
    )
