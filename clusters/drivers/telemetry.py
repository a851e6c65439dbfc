"""Asks the Prometheus of clusters: side by side, each within its time, without redirects or proxies.

The name is resolved and judged by the egress guard again for each hour that is asked for, and all connections go to the address that was
judged. Why there is no answer is said without anything that was sent or received.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import yarl

from clusters.engine.hook_servers import HookServer

from .connections import run
from .hook_servers import hook_address, hook_tls, host_header
from .port import DriverError

ASK_SECONDS = 20.0
"""For all questions about an hour of a cluster."""
QUESTION_SECONDS = 8
"""What Prometheus may take for one question."""
GRACE_SECONDS = 2.0
AT_ONCE = 4
"""Questions that one Prometheus gets side by side."""
MOST_ANSWER_BYTES = 2 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024
"""Of all answers about an hour of a cluster."""
PATH = "/api/v1/query"
OK = 200
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Questions to one Prometheus, each about the hour that ends at `until_seconds` (Unix time)."""

    server: HookServer
    queries: Sequence[str]
    until_seconds: int
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Answers:
    """The bodies of the answers, in order; or none, and why."""

    bodies: tuple[bytes, ...] = field(default=(), repr=False)
    why_not: str = ""


def ask_all(inquiries: Sequence[Inquiry]) -> list[Answers]:
    """What each Prometheus answered, in order, within ASK_SECONDS for all together."""
    answers = [Answers(why_not=f"no complete answer within {ASK_SECONDS:g} s") for _ in inquiries]
    try:
        run(_ask_all(inquiries, answers), ASK_SECONDS + GRACE_SECONDS)
    except DriverError as error:
        return [one if one.bodies else Answers(why_not=error.reason) for one in answers]
    return answers


async def _ask_all(inquiries: Sequence[Inquiry], answers: list[Answers]) -> None:
    await asyncio.gather(*(_ask(inquiry, answers, index) for index, inquiry in enumerate(inquiries)))


async def _ask(inquiry: Inquiry, answers: list[Answers], index: int) -> None:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            address = await asyncio.to_thread(hook_address, inquiry.server)
            answers[index] = Answers(await _bodies(inquiry, address))
    except TimeoutError:
        pass  # as it was before
    except _Refused as refused:
        answers[index] = Answers(why_not=str(refused))
    except DriverError as error:
        answers[index] = Answers(why_not=error.reason)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        answers[index] = Answers(why_not=f"the connection failed ({type(error).__name__})")


class _Refused(Exception):
    """The answer cannot be used."""


async def _bodies(inquiry: Inquiry, address: str) -> tuple[bytes, ...]:
    left, turns = [MOST_BYTES], asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=hook_tls("")),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    ) as session:

        async def one(query: str) -> bytes:
            async with turns:
                return await _exchange(session, inquiry, address, query, left)

        tasks = [asyncio.ensure_future(one(query)) for query in inquiry.queries]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()


async def _exchange(
    session: aiohttp.ClientSession, inquiry: Inquiry, address: str, query: str, left: list[int]
) -> bytes:
    hook = inquiry.server
    headers = {"Host": host_header(hook), "Accept-Encoding": "identity", "User-Agent": "switchyard"}
    if inquiry.token:
        headers["Authorization"] = f"Bearer {inquiry.token}"
    async with session.post(
        yarl.URL(f"{hook.origin_at(address)}{hook.server.path}{PATH}", encoded=True),
        data={"query": query, "time": str(inquiry.until_seconds), "timeout": f"{QUESTION_SECONDS}s"},
        headers=headers,
        server_hostname=None if hook.is_plain else hook.server.host,
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None),  # only the caller's timeout applies
    ) as answer:
        if answer.status != OK:
            raise _Refused(f"it answered {answer.status}")
        found = bytearray()
        async for piece in answer.content.iter_chunked(_PIECE):
            found += piece
            left[0] -= len(piece)
            if len(found) > MOST_ANSWER_BYTES or left[0] < 0:
                raise _Refused("the answer is too large")
        return bytes(found)
