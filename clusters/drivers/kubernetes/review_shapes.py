"""What an API server says of itself and of our rights, as far as we read it."""

import msgspec


class Version(msgspec.Struct, rename="camel"):
    """The server's version."""

    git_version: str = ""


class Group(msgspec.Struct):
    """An API group."""

    name: str


class Groups(msgspec.Struct):
    """The API groups."""

    groups: list[Group]


class RulesStatus(msgspec.Struct, rename="camel"):
    """The rules of a review."""

    resource_rules: list[dict[str, list[str] | None]] | None = None
    incomplete: bool = False


class Rules(msgspec.Struct):
    """A SelfSubjectRulesReview."""

    status: RulesStatus


class AccessStatus(msgspec.Struct):
    """The answer of a review."""

    allowed: bool = False


class Access(msgspec.Struct):
    """A SelfSubjectAccessReview."""

    status: AccessStatus
