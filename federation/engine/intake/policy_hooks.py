"""Policy hooks apply an installation's own rules to a submitted job: the question, the hook's answer, and its reading.

A hook refuses the job, or changes fields of the spec; it never changes the tenant. Its answer is untrusted: messages
are cut and cleaned, and changed specs go through the same reader as a user's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foundation.problems import Problem

from .job_fields import JOB_FIELD_NAMES
from .normal_form import spec_json
from .spec import JobSpec

MAX_WORDS = 300
RETRY_SECONDS = 5
_TOKEN = re.compile(r"[\x21-\x7e]{0,4096}")
_ANSWER_FIELDS = frozenset(["allow", "message", "changes"])


class PolicyRefused(Problem):
    """The policy of this installation does not allow the job."""

    status, code, title = 422, "policy_refused", "Refused by policy"


class PolicyUnavailable(Problem):
    """The policy of this installation could not be checked; nothing was stored. Try again."""

    status, code, title = 503, "policy_unavailable", "Policy unavailable"


class HookFailed(Exception):
    """A hook gave no usable answer. The message says why, for the log, and contains nothing that was sent."""


class HookNotAsked(HookFailed):
    """There was no time left to ask. This failure is never ignored, or a long list would bypass the hook."""


Said = Mapping[str, Any] | PolicyRefused | HookFailed
"""The result for one job: the changed fields, a refusal, or why there is no answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """A submitted job and its submitter. `is_dry_run`: a quote, after which nothing is stored."""

    tenant_path: str
    user: str
    request_id: str
    spec: JobSpec
    is_dry_run: bool = False

    @property
    def asker(self) -> dict[str, Any]:
        """The submitter, in plain values."""
        return {
            "tenant": self.tenant_path,
            "user": self.user,
            "request_id": self.request_id,
            "dry_run": self.is_dry_run,
        }

    def body(self) -> dict[str, Any]:
        """The complete question, as sent."""
        return {"version": 1, **self.asker, "spec": spec_json(self.spec)}


def check_token(text: str) -> None:
    """Raises ValueError unless the text is allowed in a header."""
    if not _TOKEN.fullmatch(text):
        raise ValueError("must be at most 4096 printable ASCII characters without spaces")


def read_answer(value: object) -> Mapping[str, Any]:
    """The fields that the hook changes. Raises PolicyRefused with the hook's message, HookFailed
    for an invalid answer.
    """
    if not isinstance(value, dict):
        raise HookFailed("the answer is not an object")
    if value.get("allow") is False:
        # First: a refusal counts, whatever else is wrong with the answer.
        raise refusal(value.get("message"))
    if value.get("allow") is not True:
        raise HookFailed("the answer has no `allow` of true or false")
    if not _ANSWER_FIELDS.issuperset(value):
        raise HookFailed("the answer has fields besides allow, message and changes")
    changes = value.get("changes")
    if changes is None:
        return {}
    if not isinstance(changes, dict):
        raise HookFailed("`changes` is not an object")
    return changes


def refusal(words: object) -> PolicyRefused:
    """The refusal with the hook's message: printable, on one line, at most 300 characters."""
    text = words if isinstance(words, str) else ""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_WORDS])
    return PolicyRefused(" ".join(shown.split())[:MAX_WORDS])


def changed_fields(before: JobSpec, after: JobSpec) -> tuple[str, ...]:
    """Names of the spec's fields that differ, sorted."""
    if before == after:
        return ()
    old, new = spec_json(before), spec_json(after)
    return tuple(name for name in sorted(JOB_FIELD_NAMES) if old.get(name) != new.get(name))
