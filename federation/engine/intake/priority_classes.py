"""Priority classes at a tenant: which of them a user may name there, and which one a job gets that names none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from federation.engine import names
from quotas.engine.amounts import JOBS, BadAmount, format_amount, parse_amount
from tenancy.engine.roles import GRANTS, Role, permissions_of

from .reading import Faults, Fields, child
from .spec import DNS_LABEL

MOST_VALUE = 1_000_000
"""A value lies between minus this and this."""
MOST_GRANTS = 100
MOST_DESCRIPTION_BYTES = 500
EVERY_ROLE = ""
PREEMPTS = ("never", "lower")
"""Whether waiting jobs of a class may replace running ones: never, or those of lower priority in their organisation."""
USUAL_SHIELD_SECONDS = 300
MOST_SHIELD_SECONDS = 30 * 24 * 3600
CLASS_FIELDS = frozenset(
    [
        "name",
        "value",
        "description",
        "is_open",
        "is_default",
        "preempts",
        "shield_seconds",
        "most_running",
        "most_gpus",
        "grants",
    ]
)
MOST_RUNNING = 10_000_000
GPUS = "gpu"
GRANT_FIELDS = frozenset(["role", "tenant"])
ROLE_NAMES = tuple(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class ClassHere:
    """A class as a tenant sees it: `roles` are those that its grants at the tenant and above name. `preempts`: its waiting
    jobs replace running ones of lower priority.
    """

    id: UUID
    name: str
    value: int
    is_default: bool
    is_open: bool
    roles: tuple[str, ...] = ()
    preempts: bool = False
    shield_seconds: int = USUAL_SHIELD_SECONDS

    @property
    def is_known_here(self) -> bool:
        """Whether any user of the tenant may use it."""
        return self.is_open or bool(self.roles)

    def admits(self, held: Iterable[str]) -> bool:
        """Whether a user with these roles may use it. A role counts for each that grants no more than it does."""
        permissions = permissions_of(held)
        return self.is_open or any(not role or GRANTS[Role(role)] <= permissions for role in self.roles)


@dataclass(frozen=True, slots=True)
class ClassesHere:
    """The classes of the installation for one user at one tenant, the most urgent first.

    `inherited` is the default that the nearest policy sets; empty if none does.
    """

    tenant_path: str
    classes: tuple[ClassHere, ...]
    held: tuple[str, ...] = ()
    is_operator: bool = False
    inherited: str = ""

    @property
    def usable(self) -> tuple[ClassHere, ...]:
        """Those that the user may name."""
        return tuple(one for one in self.classes if self.is_operator or one.admits(self.held))

    @property
    def default_name(self) -> str:
        """The class of a job that names none: the nearest policy's, else the installation's."""
        return self.inherited or next((one.name for one in self.classes if one.is_default), "")

    def named(self, name: str) -> ClassHere:
        """The class with this name, which must be there."""
        return next(one for one in self.classes if one.name == name)

    def replaces(self, value: int) -> bool:
        """Whether waiting jobs of some class may replace running jobs of this priority."""
        return any(one.preempts and one.value > value for one in self.classes)

    def fault(self, name: str) -> tuple[str, str] | None:
        """Why the user may not name a class, as code and detail. One that no user of the tenant may use is unknown there."""
        usable = [one.name for one in self.usable]
        if name in usable:
            return None
        known = any(one.name == name and one.is_known_here for one in self.classes)
        may = f"in {self.tenant_path} you may use {', '.join(usable)}" if usable else "you may use none"
        if known or name == self.default_name:
            return "not_allowed", f"you may not use the priority class {name}; {may}"
        return "unknown_value", f"there is no such priority class; {may}"


@dataclass(frozen=True, slots=True)
class WantedGrant:
    """A role, a tenant's path, or both; empty for any."""

    role: str
    tenant_path: str


@dataclass(frozen=True, slots=True)
class WantedClass:
    """A class as it shall be. `is_default` is None if the installation's default shall remain as it is.

    `most_running` is how many of its jobs may hold anything at the same time in the whole installation, and `most_gpus` how many
    thousandths of a GPU; None is no limit.
    """

    name: str
    value: int
    description: str = ""
    is_open: bool = False
    is_default: bool | None = None
    preempts: str = PREEMPTS[0]
    shield_seconds: int = USUAL_SHIELD_SECONDS
    grants: tuple[WantedGrant, ...] = ()
    most_running: int | None = None
    most_gpus: int | None = None

    @property
    def limits(self) -> dict[str, int | None]:
        """Its limits by resource, in base units of quota."""
        return {JOBS: self.most_running, GPUS: self.most_gpus}


def read_class(value: object) -> WantedClass:
    """The class in a JSON object. Raises Refused with every field at fault."""
    faults = Faults()
    fields = Fields(value, "", faults, CLASS_FIELDS)
    given = fields.values.get("is_default")
    shield = fields.whole("shield_seconds", 0, MOST_SHIELD_SECONDS)
    wanted = WantedClass(
        name=fields.checked("name", names.dns_label, DNS_LABEL, most_bytes=names.MAX_LABEL),
        value=fields.whole("value", -MOST_VALUE, MOST_VALUE, required=True) or 0,
        description=fields.text("description", default="", most_bytes=MOST_DESCRIPTION_BYTES),
        is_open=fields.flag("is_open", default=False),
        is_default=None if given is None else fields.flag("is_default", default=False),
        preempts=fields.choice("preempts", PREEMPTS, PREEMPTS[0]),
        shield_seconds=USUAL_SHIELD_SECONDS if shield is None else shield,
        grants=_read_grants(fields),
        most_running=fields.whole("most_running", 0, MOST_RUNNING),
        most_gpus=_read_gpus(fields),
    )
    if wanted.is_open and wanted.grants:
        fields.fault("grants", "not_allowed", "an open class needs no grants")
    faults.refuse_if_any()
    return wanted


def _read_gpus(fields: Fields) -> int | None:
    if fields.values.get("most_gpus") is None:
        return None
    before = len(fields.faults.found)
    text = fields.quantity("most_gpus", most_bytes=40)
    try:
        return parse_amount(GPUS, text) if len(fields.faults.found) == before else None
    except BadAmount as error:
        fields.fault("most_gpus", error.code, str(error))
        return None


def gpus_text(milli: int | None) -> str | None:
    """Thousandths of a GPU as a quantity of GPUs; null for none."""
    return None if milli is None else format_amount(GPUS, milli)


def _read_grants(fields: Fields) -> tuple[WantedGrant, ...]:
    found: list[WantedGrant] = []
    for index, value in enumerate(fields.array("grants", most=MOST_GRANTS)):
        path = f"grants[{index}]"
        own = Fields(value, path, fields.faults, GRANT_FIELDS)
        grant = WantedGrant(own.choice("role", ROLE_NAMES, EVERY_ROLE), own.text("tenant", default="", most_bytes=1100))
        if own.values.get("role") is None and not grant.tenant_path and isinstance(value, dict):
            fields.faults.add(child(path, "role"), "required", "name a role, a tenant or both; or make the class open")
        found.append(grant)
    return tuple(sorted(set(found), key=lambda grant: (grant.tenant_path, grant.role)))


def class_json(wanted: WantedClass, *, is_default: bool) -> dict[str, Any]:
    """A class with every field, as the API and the audit trail show it."""
    return {
        "name": wanted.name,
        "value": wanted.value,
        "description": wanted.description,
        "is_open": wanted.is_open,
        "is_default": is_default,
        "preempts": wanted.preempts,
        "shield_seconds": wanted.shield_seconds,
        "most_running": wanted.most_running,
        "most_gpus": gpus_text(wanted.most_gpus),
        "grants": grants_json(wanted.grants),
    }


def grants_json(grants: Sequence[WantedGrant]) -> list[dict[str, str | None]]:
    """Grants as the API shows them; null for any."""
    return [{"role": grant.role or None, "tenant": grant.tenant_path or None} for grant in grants]
