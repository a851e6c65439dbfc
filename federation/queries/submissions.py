"""Reads a submission from a body: the tenant's path and the spec, to submit it or for a quote."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.conf import settings

from federation.engine.intake.job_fields import BESIDE_MANIFEST, JOB_FIELD_NAMES
from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.reading import Fault, Faults, Fields, Refused
from federation.engine.intake.reservation_reading import named_shape
from federation.engine.intake.spec import JobSpec, Rules
from federation.engine.intake.spec_reading import read_spec
from federation.queries.priority_classes import TenantRules
from foundation.problems import FieldError, Invalid

SUBMISSION_FIELDS = JOB_FIELD_NAMES | {"tenant"}
MANIFEST_FIELDS = frozenset(BESIDE_MANIFEST) | {"tenant", "manifest"}


@dataclass(frozen=True, slots=True)
class Submission:
    """A well-formed request to run a job for a tenant."""

    tenant_path: str
    spec: JobSpec
    names_strategy: bool = True
    names_class: bool = True

    def under(self, rules: TenantRules) -> JobSpec:
        """The spec as the tenant's rules complete it; Invalid for a strategy or a priority class that they do not allow."""
        spec = self._ranked(rules)
        chosen = rules.chosen(spec.priority_class if self.names_class else "")
        return spec if chosen.name == spec.priority_class else replace(spec, priority_class=chosen.name)

    def shape_under(self, rules: TenantRules) -> JobSpec:
        """Likewise for a job that is never submitted, for users who may not submit: of the classes, it can name any that
        the tenant knows.
        """
        if self.names_class:
            rules.check_known(self.spec.priority_class)
            return self._ranked(rules)
        return replace(self._ranked(rules), priority_class=rules.classes.default_name)

    def _ranked(self, rules: TenantRules) -> JobSpec:
        if not self.names_strategy:
            return replace(self.spec, strategy=rules.policy.default_strategy)
        if fault := rules.policy.strategy_fault(self.spec.strategy):
            raise Invalid.field("strategy", "not_allowed", fault)
        return self.spec


def rules() -> Rules:
    """The rules of this installation for specs."""
    return Rules(
        allow_simulation=settings.ALLOW_SIMULATION,
        require_digest=settings.REQUIRE_DIGEST,
        resources=settings.RESOURCES,
        takes_reports=bool(settings.PUBLIC_URL),
        has_sessions=settings.SESSION_ORIGIN is not None,
    )


def read_submission(body: object, *, default_tenant: str = "") -> Submission:
    """The tenant's path and the spec, or Invalid with every field at fault."""
    return _read(body, default_tenant, rules())


def read_shape(body: object, *, default_tenant: str = "") -> Submission:
    """As `read_submission`, for a body in which the job's name and its pods' names and images may be missing."""
    return _read(named_shape(body), default_tenant, replace(rules(), require_digest=False))


def _read(body: object, default_tenant: str, rules: Rules) -> Submission:
    values = body if isinstance(body, dict) else {}
    has_manifest = "manifest" in values
    faults = Faults()
    top = Fields(body, "", faults, MANIFEST_FIELDS if has_manifest else SUBMISSION_FIELDS)
    tenant_path = top.text("tenant", default=default_tenant or None, most_bytes=1100)
    spec = None
    try:
        if has_manifest:
            spec = read_manifest(values["manifest"], values, rules)
        elif isinstance(body, dict):
            spec = read_spec({name: value for name, value in values.items() if name in JOB_FIELD_NAMES}, rules)
    except Refused as refused:
        faults.found += refused.faults
    if spec is None or faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return Submission(tenant_path, spec, values.get("strategy") is not None, values.get("priority_class") is not None)


def field_errors(faults: Iterable[Fault]) -> list[FieldError]:
    """The faults as the fields of a refusal."""
    return [FieldError(fault.field, fault.code, fault.detail) for fault in faults]
