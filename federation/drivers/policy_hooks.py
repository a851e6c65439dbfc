"""The installation's own rules at submission: Python entry points of the group `switchyard.policies`, and one HTTP
hook.

The administrator's URL also goes through the egress guard: its name is resolved and checked for every request, and
connections use the checked address. Redirects and proxies are not used, answers are capped, and the total time is
limited.
"""

import asyncio
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import aiohttp
import yarl
from django.conf import settings

from clusters.drivers import DriverError
from clusters.drivers.connections import run
from clusters.drivers.hook_servers import hook_address, hook_tls, host_header
from clusters.engine.hook_servers import HookServer, read_hook_url
from federation.engine.intake.job_fields import JOB_FIELD_NAMES
from federation.engine.intake.normal_form import spec_json
from federation.engine.intake.policy_hooks import (
    HookFailed,
    HookNotAsked,
    PolicyRefused,
    Question,
    Said,
    read_answer,
    refusal,
)
from foundation.caches import cached
from foundation.plain_json import encode
from foundation.strict_json import MalformedJSON, loads

GROUP = "switchyard.policies"
MAX_ANSWER_BYTES = 64 * 1024
CONCURRENT_QUESTIONS = 8
MANY_SECONDS = 20.0
"""The time limit for all jobs of one request together: well within a web worker's limit."""
GRACE_SECONDS = 1.0
OK = 200


def has_hooks() -> bool:
    """Whether any hook is configured. Costs next to nothing."""
    return bool(settings.POLICY_URL) or bool(installed_hooks())


def installed_hooks() -> tuple[EntryPoint, ...]:
    """The entry points of this process, by name; searched once."""
    return _hooks_on(tuple(sys.path))


@cached(most=1)
def _hooks_on(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)))


def ask_installed(hook: EntryPoint, question: Question) -> Said:
    """The answer of an entry point. It runs in this process, so only it can limit its time."""
    try:
        answer = hook.load()(spec_json(question.spec), question.asker)
        if not isinstance(answer, dict):
            return HookFailed(f"{hook.name} answered with {type(answer).__name__} instead of a dict")
        # Once through JSON: whatever its classes, the values are plain afterwards.
        fields: dict[str, Any] = loads(encode(answer))
        return {**dict.fromkeys(JOB_FIELD_NAMES), **fields}
    except PolicyRefused as refused:
        return refusal(refused.detail)
    except Exception as error:  # noqa: BLE001 - it is not our code; its message may hold what it was given
        places = traceback.extract_tb(error.__traceback__)
        return HookFailed(f"{hook.name} raised {type(error).__name__} at {places[-1].filename}:{places[-1].lineno}")


def ask_server(questions: Sequence[Question]) -> list[Said]:
    """The answers of the HTTP hook, in order. One question takes at most POLICY_SECONDS, all of them MANY_SECONDS."""
    each = float(settings.POLICY_SECONDS)
    whole = each if len(questions) == 1 else max(each, MANY_SECONDS)
    said: list[Said] = [HookNotAsked("there was no time left to ask") for _ in questions]
    try:
        run(_ask_all(_hook_server(settings.POLICY_URL), questions, said, (each, whole)), whole + GRACE_SECONDS)
    except DriverError as error:
        failed = HookFailed(str(error))
        return [failed if isinstance(answer, HookNotAsked) else answer for answer in said]
    return said


async def _ask_all(
    hook: HookServer, questions: Sequence[Question], said: list[Said], seconds: tuple[float, float]
) -> None:
    """Fills `said` as answers arrive. Raises DriverError if the hook's address is not available."""
    each, whole = seconds
    end = asyncio.get_running_loop().time() + whole
    try:
        async with asyncio.timeout(each):
            address = await asyncio.to_thread(hook_address, hook)
    except TimeoutError:
        raise DriverError(f"its name could not be resolved within {each:g} s") from None
    connector = aiohttp.TCPConnector(ssl=hook_tls(settings.POLICY_CA), limit=CONCURRENT_QUESTIONS)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
    ) as session:
        waiting = iter(enumerate(questions))
        askers = min(CONCURRENT_QUESTIONS, len(questions))
        await asyncio.gather(*(_ask_in_turn(session, hook, address, waiting, said, (each, end)) for _ in range(askers)))


async def _ask_in_turn(
    session: aiohttp.ClientSession,
    hook: HookServer,
    address: str,
    waiting: Iterator[tuple[int, Question]],
    said: list[Said],
    limits: tuple[float, float],
) -> None:
    each, end = limits
    loop = asyncio.get_running_loop()
    for index, question in waiting:
        began = loop.time()
        if began >= end:
            return
        try:
            async with asyncio.timeout_at(min(began + each, end)):
                said[index] = read_answer(loads(await _exchange(session, hook, address, encode(question.body()))))
        except (PolicyRefused, HookFailed) as answer:
            said[index] = answer
        except MalformedJSON:
            said[index] = HookFailed("the answer is not JSON")
        except TimeoutError:
            said[index] = HookFailed(f"no complete answer within {each:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said[index] = HookFailed(f"the connection failed ({type(error).__name__})")


async def _exchange(session: aiohttp.ClientSession, hook: HookServer, address: str, content: bytes) -> bytes:
    """The body of a 200 in JSON. Raises HookFailed for any other answer."""
    async with session.post(
        yarl.URL(f"{hook.origin_at(address)}{hook.server.path or '/'}", encoded=True),
        data=content,
        headers=_headers(hook),
        server_hostname=None if hook.is_plain else hook.server.host,
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None),  # only the caller's timeout applies
    ) as answer:
        if answer.status != OK:
            raise HookFailed(f"it answered {answer.status}")
        if (
            answer.content_type != "application/json"
            or answer.headers.get("Content-Encoding", "identity") != "identity"
        ):
            raise HookFailed("the answer is not plain application/json")
        parts = bytearray()
        async for part in answer.content.iter_any():
            parts += part
            if len(parts) > MAX_ANSWER_BYTES:
                raise HookFailed(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        return bytes(parts)


def _headers(hook: HookServer) -> Mapping[str, str]:
    headers = {
        "Host": host_header(hook),
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "switchyard",
    }
    if settings.POLICY_TOKEN:
        headers["Authorization"] = f"Bearer {settings.POLICY_TOKEN}"
    return headers


@lru_cache(maxsize=4)
def _hook_server(url: str) -> HookServer:
    return read_hook_url(url)
