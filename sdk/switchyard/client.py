"""The HTTP API as Python functions: `Client(address, token).submit({...}, key="build-42")`.

Answers are the API's JSON as dicts and lists, with the fields that its reference names. Every function raises a
`SwitchyardError` if it does not succeed.
"""

import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx

from .problems import NotConfigured, Problem, TimedOut, Unreachable

JSON = dict[str, Any]
ENDED = frozenset({"succeeded", "failed", "cancelled"})
REPEATED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
LONGEST_PAUSE = 60.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Client:
    """A connection to one gateway. `patience` is how many seconds a request is repeated while the gateway does not answer
    or asks to wait; `ca_file` is a PEM file of the authorities to trust instead of the system's. `transport`
    replaces the network, in tests.

    A token is sent to `https` addresses and to this host only, and redirects are not followed.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        patience: float = 300,
        timeout: float = 60,
        ca_file: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = checked_address(address)
        self._patience = patience
        self._http = httpx.Client(
            base_url=f"{self.address}/api/v1/",
            headers={"Authorization": f"Bearer {checked_token(token)}", "User-Agent": "switchyard-client"},
            timeout=timeout,
            follow_redirects=False,
            verify=_authorities(ca_file) if ca_file else True,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def get(self, path: str, **params: Any) -> JSON:
        """The answer to a question; parameters that are None are left out."""
        return self._ask("GET", path, params={name: value for name, value in params.items() if value is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> JSON:
        """The answer to a write that may be repeated: because the API documents it as idempotent, or because of `key`, its
        `Idempotency-Key`.
        """
        return self._ask("POST", path, body=body or {}, headers={"Idempotency-Key": key} if key else {})

    def items(self, path: str, *, most: int | None = None, **params: Any) -> Iterator[JSON]:
        """The items of a list, page by page, `most` of them at most."""
        left, cursor = most, None
        while left is None or left > 0:
            page = self.get(path, limit=min(500, left or 500), cursor=cursor, **params)
            yield from page["items"][:left]
            left = None if left is None else left - len(page["items"])
            cursor = page["next"]
            if cursor is None:
                return

    def submit(self, spec: Mapping[str, Any], *, key: str) -> JSON:
        """The submitted job. With the same key and spec it is the first one again, for two days: nothing runs twice."""
        return self.post("jobs", spec, key=key)

    def job(self, job_id: str) -> JSON:
        """A job with its newest attempt and its cost so far."""
        return self.get(f"jobs/{_part(job_id)}")

    def explanation(self, job_id: str) -> JSON:
        """Why a job waits, overall and for each cluster."""
        return self.get(f"jobs/{_part(job_id)}/explanation")

    def events(self, job_id: str) -> Iterator[JSON]:
        """What happened to a job, the oldest first."""
        return self.items(f"jobs/{_part(job_id)}/events")

    def act(self, job_id: str, action: str, body: Mapping[str, Any] | None = None) -> JSON:
        """The job after `cancel`, `suspend` or `resume`, each of which may be repeated. `body` has what the reference names, such as
        `{"wait_for_checkpoint_seconds": 600}` of `suspend`.
        """
        return self.post(f"jobs/{_part(job_id)}/{action}", body)

    def move(
        self,
        job_id: str,
        *,
        key: str,
        clusters: Sequence[str] = (),
        reason: str = "",
        lose_work: bool = False,
        wait_for_checkpoint_seconds: int = 0,
    ) -> JSON:
        """The job, whose run is being stopped so that it continues on another cluster (one of `clusters`, if there are any), or goes on
        until its next checkpoint for this time at most. With the same key, a repetition does not move it again.
        """
        body: JSON = {"clusters": [*clusters], "reason": reason, "lose_work": lose_work}
        if wait_for_checkpoint_seconds:
            body["wait_for_checkpoint_seconds"] = wait_for_checkpoint_seconds
        return self.post(f"jobs/{_part(job_id)}/migrate", body, key=key)

    def logs(self, job_id: str, **params: Any) -> JSON:
        """The ends of an attempt's logs, with `attempt`, `pod`, `container` and `tail_lines` as in the reference."""
        return self.get(f"jobs/{_part(job_id)}/logs", **params)

    def wait(
        self, job_id: str, *, timeout: float | None = None, every: float = 5, seen: Callable[[JSON], None] | None = None
    ) -> JSON:
        """The job after its end. `seen` gets each state of it that was read. Raises TimedOut after `timeout` seconds; the
        job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.job(job_id)
            if seen is not None:
                seen(job)
            if job["state"] in ENDED:
                return job
            left = every if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(f"Job {job_id} has not ended within {timeout:g} seconds. It goes on.")
            time.sleep(min(every, left))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSON:
        deadline, pause = time.monotonic() + self._patience, 0.5
        while True:
            try:
                answer = self._http.request(method, path, params=params, json=body, headers=headers)
            except (httpx.TransportError, httpx.DecodingError) as error:
                trouble, wish = f"{self.address} does not answer: {error or type(error).__name__}", 0.0
            else:
                if answer.is_success:
                    return _json(answer)
                problem = _problem(answer)
                if answer.status_code not in REPEATED and problem.code != "idempotency_in_progress":
                    raise problem
                trouble, wish = f"{self.address} answers with status {answer.status_code}: {problem}", _asked(answer)
            pause = min(pause * 2, LONGEST_PAUSE)
            wait = max(wish, pause * random.uniform(0.5, 1))  # noqa: S311 - spreads clients, protects nothing
            if time.monotonic() + wait > deadline:
                raise Unreachable(trouble)
            time.sleep(wait)


def checked_address(address: str) -> str:
    """The address without a slash at its end. Raises NotConfigured if a token must not be sent there."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise NotConfigured(f"{address!r} is no address of a gateway, such as https://switchyard.example.com.")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise NotConfigured(f"{address} is not encrypted, and the token would be readable on its way: use https.")
    return address.rstrip("/")


def checked_token(token: str) -> str:
    """The token without white space around it. Raises NotConfigured for what cannot be one."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise NotConfigured("The token is empty, or has characters that no token has.")
    return token


def _part(identifier: str) -> str:
    """As one part of a path, whatever characters it has."""
    if not identifier or set(identifier) <= {"."}:
        raise NotConfigured("The id is empty.")
    return quote(identifier, safe="")


def _authorities(file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise NotConfigured(f"{file} has no certificates in PEM format: {error}") from error


def _json(answer: httpx.Response) -> JSON:
    if answer.status_code == httpx.codes.NO_CONTENT:
        return {}
    found = _object(answer)
    if found is None:
        raise Unreachable(f"{answer.url} answers with something that is not a JSON object: is it a gateway?")
    return found


def _object(answer: httpx.Response) -> JSON | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _problem(answer: httpx.Response) -> Problem:
    body = _object(answer)
    if body is None:
        where = f" to {answer.headers['Location']}" if "Location" in answer.headers else ""
        body = {"detail": f"It answers with status {answer.status_code}{where}, and not as a gateway does."}
    return Problem(answer.status_code, body)


def _asked(answer: httpx.Response) -> float:
    """The seconds that the gateway asks to wait, 0 if it does not."""
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_PAUSE) if asked.isdigit() else 0.0
