"""Posts texts to servers that users named: side by side, each within its time, without redirects or proxies.

Each name is resolved and judged by the egress guard again for every post, and the connection goes to the address that was judged. Of
an answer only the status counts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import yarl

from clusters.engine.hook_servers import HookServer

from .connections import run
from .hook_servers import hook_address, hook_tls, host_header
from .port import DriverError

POST_SECONDS = 5.0
"""For one post in all: name, connection, answer."""
GRACE_SECONDS = 2.0
GONE = 410
MOST_ANSWER_BYTES = 1024
"""What is read of an answer's body. It is not kept: it could repeat what was sent."""


@dataclass(frozen=True, slots=True)
class Post:
    """A body for a server, with its headers."""

    server: HookServer
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, or None and why there is none: short, and without anything that was sent or received. `is_gone`: nothing is there any more."""

    status: int | None
    why_not: str = ""
    is_gone: bool = False


def post_all(posts: Sequence[Post]) -> list[Answer]:
    """The answers, in order, within POST_SECONDS for all together. A post without an answer may have arrived."""
    answers = [Answer(None, f"no complete answer within {POST_SECONDS:g} s") for _ in posts]
    try:
        run(_post_all(posts, answers), POST_SECONDS + GRACE_SECONDS)
    except DriverError as error:
        return [answer if answer.status is not None else Answer(None, str(error)) for answer in answers]
    return answers


async def _post_all(posts: Sequence[Post], answers: list[Answer]) -> None:
    await asyncio.gather(*(_post(post, answers, index) for index, post in enumerate(posts)))


async def _post(post: Post, answers: list[Answer], index: int) -> None:
    try:
        async with asyncio.timeout(POST_SECONDS):
            address = await asyncio.to_thread(hook_address, post.server)
            answers[index] = await _exchange(post, address)
    except TimeoutError:
        pass  # as it was before
    except DriverError as error:
        answers[index] = Answer(None, str(error))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        answers[index] = Answer(None, f"the connection failed ({type(error).__name__})")


async def _exchange(post: Post, address: str) -> Answer:
    hook = post.server
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=hook_tls(""), force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        ) as session,
        session.post(
            yarl.URL(f"{hook.origin_at(address)}{hook.server.path or '/'}", encoded=True),
            data=post.body,
            headers={
                "Host": host_header(hook),
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "switchyard",
                **post.headers,
            },
            server_hostname=None if hook.is_plain else hook.server.host,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),  # only the caller's timeout applies
        ) as answer,
    ):
        await answer.content.read(MOST_ANSWER_BYTES)
        return Answer(answer.status, is_gone=answer.status == GONE)
