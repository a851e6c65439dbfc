"""Tries with a credential, in dry runs, what a thief of it would try."""

import asyncio
from collections.abc import Collection, Sequence
from secrets import token_hex

from clusters.drivers import ClusterDriver, Refused
from clusters.engine.escapes import (
    FOREIGN_NAMESPACES,
    PROBE_NAMESPACE,
    Answered,
    Confinement,
    Rehearsal,
    duties,
    escapes,
    judged,
)
from clusters.engine.permissions import CREATE_SECRETS

PAUSE_SECONDS = 1.0
"""An API server enforces newly applied policies after about this delay."""


async def find_escapes(driver: ClusterDriver, groups: Collection[str], *, pauses: int) -> Confinement:
    """How the cluster confines the driver's credential. Repeats rehearsals that the cluster would allow, after up to
    `pauses` waits.
    """
    code = token_hex(5)
    working = await _ask(driver, duties(groups, code, with_secrets=await _may_create_secrets(driver)))
    escaping = await _ask(driver, escapes(groups, code, await _foreign_pods(driver)))
    for _ in range(pauses):
        let_through = [answer.rehearsal for answer in escaping if answer.would]
        if not let_through:
            break
        await asyncio.sleep(PAUSE_SECONDS)
        kept = [answer for answer in escaping if not answer.would]
        escaping = kept + await _ask(driver, let_through)
    return judged(escaping, working)


async def _may_create_secrets(driver: ClusterDriver) -> bool:
    try:
        return await driver.may(CREATE_SECRETS, PROBE_NAMESPACE)
    except Refused:
        return False


async def _ask(driver: ClusterDriver, rehearsals: Sequence[Rehearsal]) -> list[Answered]:
    """Runs the rehearsals one after the other, so that no call remains pending if one fails."""
    return [await driver.rehearse(rehearsal) for rehearsal in rehearsals]


async def _foreign_pods(driver: ClusterDriver) -> list[tuple[str, str]]:
    """A pod of each foreign namespace that has any; patching one that does not exist would prove nothing."""
    found = []
    for namespace in FOREIGN_NAMESPACES:
        try:
            name = await driver.any_pod(namespace)
        except Refused:
            continue
        if name:
            found.append((namespace, name))
    return found
