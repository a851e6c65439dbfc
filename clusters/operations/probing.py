"""Probes a cluster for its identity, our credential's rights, and its clock. Never inside a transaction."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from clusters.drivers import AuthFailed, ClusterDriver, DriverError, IdentityRefused, Refused, TlsFailed, connections
from clusters.drivers.address import ClusterAddress
from clusters.drivers.resolve import AddressRefused
from clusters.engine.escapes import APPLY, Confinement, confinement_findings
from clusters.engine.health import Reason, clock_findings
from clusters.engine.permissions import (
    FORMERLY,
    OF_GANGS,
    REVIEWED_NAMESPACES,
    ROLE,
    TELLTALES,
    Comparison,
    Right,
    compare,
    compare_asked,
    needed,
)
from foundation.problems import FieldError, Invalid, Problem

from .escapes import find_escapes

PROBE_SECONDS = 30
PAUSES = 5
KUEUE = "kueue.x-k8s.io"
MOST_SENSITIVE_NAMESPACE = "kube-system"
MOST_RIGHTS_TOLD = 50
UNKNOWN = Confinement()


class ProbeRefused(Problem):
    """The cluster cannot be used as it is; the code says why."""

    status, code, title = 422, "probe_refused", "Cluster probe refused"


@dataclass(frozen=True, slots=True)
class Probe:
    """A cluster's responses about itself and our credential. `identity` is empty if we may not read it."""

    identity: str
    kubernetes_version: str
    clock_skew_ms: int
    rights: Comparison
    has_kueue: bool
    """Whether Kueue's API is served there."""
    confinement: Confinement = UNKNOWN
    """What a thief of the credential could do; unknown if a right is missing."""


def probe_new(address: ClusterAddress) -> Probe:
    """The probe of a cluster that may not be registered yet; raises ProbeRefused or Invalid unless everything fits."""
    probe = _asked(address)
    _require_fitting_rights(probe.rights)
    _require_confinement(probe)
    return _with_fitting_clock(probe)


def probe_renewed(address: ClusterAddress) -> Probe:
    """The probe of a registered cluster with another credential. Rights that earlier manifests granted or lacked, and
    their weaker confinement, do not refuse it: they become findings against the cluster, which continues to work.
    """
    probe = _asked(address)
    rights = probe.rights
    excess = tuple(right for right in rights.excess if right not in FORMERLY)
    _require_fitting_rights(replace(rights, excess=excess, missing=_needed_for_all(rights.missing)))
    return _with_fitting_clock(probe)


def _asked(address: ClusterAddress) -> Probe:
    try:
        asked = _questions(lambda: connections.open_driver(address), close=True, pauses=PAUSES)
        return connections.run(asked, PROBE_SECONDS)
    except DriverError as error:
        raise as_problem(error) from None


def _with_fitting_clock(probe: Probe) -> Probe:
    late = clock_findings(probe.clock_skew_ms)
    if late:
        raise ProbeRefused(f"{late[0].message} At most 60 s are accepted; synchronise both by NTP.", code="clock_skew")
    return probe


def probe_registered(driver: ClusterDriver) -> Probe:
    """The probe over a registered cluster's own driver; DriverError if it does not respond properly."""
    return connections.run(_questions(lambda: driver, close=False, pauses=0), PROBE_SECONDS)


def as_problem(error: DriverError) -> Problem:
    """The refusal for a driver's error at registration."""
    match error:
        case AddressRefused():
            return Invalid.field("server", "address_not_allowed", error.reason)
        case TlsFailed():
            return ProbeRefused(error.reason, code="tls_failed")
        case IdentityRefused():
            return ProbeRefused(
                f"The cluster's identity could not be verified: {error.reason}.", code="identity_refused"
            )
        case AuthFailed():
            return ProbeRefused(f"The cluster does not accept the credential: {error.reason}", code="not_authorized")
        case _:
            return ProbeRefused(f"The cluster did not answer as expected: {error.reason}", code="unreachable")


def access_findings(probe: Probe) -> list[Reason]:
    """The findings against a credential whose rights differ from the published ones, or with which a thief could do
    harm.
    """
    found = [*_rights_findings(probe.rights), *confinement_findings(probe.confinement, probe.kubernetes_version)]
    by_code: dict[str, Reason] = {}
    for reason in found:
        before = by_code.get(reason.code)
        by_code[reason.code] = Reason(reason.code, f"{before.message} {reason.message}") if before else reason
    return list(by_code.values())


def _rights_findings(rights: Comparison) -> list[Reason]:
    findings = []
    if rights.missing:
        told = f"The credential lacks permission to: {_listed(rights.missing)}."
        if OF_GANGS & frozenset(rights.missing):
            told += " Without it, no job of several pods starts there."
        findings.append(Reason("missing_permission", told))
    if rights.excess:
        told = _listed(rights.excess, rights.more_excess)
        findings.append(Reason("excess_permission", f"The credential has more rights than it should: {told}."))
    if rights.unreadable:
        findings.append(
            Reason("excess_permission", f"The credential's rights could not be checked: {rights.unreadable}.")
        )
    return findings


def _require_fitting_rights(rights: Comparison) -> None:
    """Reports both lists in one refusal, so that the user can correct everything in one step."""
    findings = _rights_findings(rights)
    if findings:
        raise ProbeRefused(
            f"{' '.join(finding.message for finding in findings)} {APPLY}.",
            code="missing_permission" if rights.missing else "excess_permission",
            errors=[
                *_errors("missing_permission", "missing", rights.missing),
                *_errors("excess_permission", "excess", rights.excess),
            ],
        )


def _require_confinement(probe: Probe) -> None:
    findings = confinement_findings(probe.confinement, probe.kubernetes_version)
    if findings:
        found = probe.confinement
        raise ProbeRefused(
            " ".join(finding.message for finding in findings),
            code="excess_permission"
            if found.open
            else "unproven_permission"
            if found.unclear
            else "missing_permission",
            errors=[
                *(
                    FieldError("credential", "excess_permission", f"a stolen credential could: {what}")
                    for what in found.open
                ),
                *(
                    FieldError("credential", "unproven_permission", f"no clear answer: {what}")
                    for what in found.unclear
                ),
                *(FieldError("credential", "missing_permission", f"refused: {what}") for what in found.hindered),
            ],
        )


def _errors(code: str, word: str, rights: Sequence[Right]) -> list[FieldError]:
    return [FieldError("credential", code, f"{word}: {right}") for right in rights[:MOST_RIGHTS_TOLD]]


def _needed_for_all(missing: Sequence[Right]) -> tuple[Right, ...]:
    """The missing rights without those that only gangs need."""
    return tuple(right for right in missing if right not in OF_GANGS)


def _listed(rights: Sequence[Right], besides: int = 0) -> str:
    told = ", ".join(str(right) for right in rights[:MOST_RIGHTS_TOLD])
    rest = max(len(rights) - MOST_RIGHTS_TOLD, 0) + besides
    return f"{told} and {rest} more" if rest > 0 else told


async def _questions(open_driver: Callable[[], ClusterDriver], *, close: bool, pauses: int) -> Probe:
    driver = open_driver()
    try:
        version = await driver.version()
        skew_ms = await driver.clock_skew_ms()
        groups = await _groups(driver)
        rights = await _rights(driver, needed(groups))
        # An account that may not read namespaces cannot get the identity; the missing right is the result then.
        lacks = _needed_for_all(rights.missing)
        identity = "" if lacks else await driver.identity()
        # An account that may not create anything is refused everything, which proves nothing.
        confinement = UNKNOWN if lacks else await find_escapes(driver, groups, pauses=pauses)
    finally:
        if close:
            await driver.close()
    return Probe(identity, version, skew_ms, rights, KUEUE in groups, confinement)


async def _rights(driver: ClusterDriver, needs: Collection[Right]) -> Comparison:
    """The credential's rights compared with the published role: by its list of rules, or one by one if that list has
    gaps.
    """
    seen = [await driver.rules(namespace) for namespace in REVIEWED_NAMESPACES]
    reviews = [review.rules for review in seen]
    if all(review.is_complete for review in seen):
        return compare(reviews, needs)
    # One after the other: no call remains pending if one fails, and a slow authorizer is not flooded.
    allowed = {right for right in sorted(ROLE | TELLTALES) if await driver.may(right)}
    allowed |= {right for right in sorted(TELLTALES) if await driver.may(right, MOST_SENSITIVE_NAMESPACE)}
    return compare_asked(reviews, allowed, needs)


async def _groups(driver: ClusterDriver) -> frozenset[str]:
    """The API groups of the cluster; empty if our account may not read them. No required right depends on them."""
    try:
        return await driver.api_groups()
    except Refused:
        return frozenset()
