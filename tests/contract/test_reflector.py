"""List-then-watch against a server that plays every trouble a watch can have."""

import asyncio

import pytest

from clusters.drivers import Ambiguous, AuthFailed, Refused
from tests.scripted_server import Connection, job_object, listed, serving, status

from .worlds import watching


def watch_through(rounds, is_enough):
    """What a watch of Jobs yields; `rounds[i]` plays the i-th watch, the last one again and again.

    Every list gives Job `listed-N` at version 100, N counting the lists.
    """
    lists, watches = [0], [0]

    async def behave(request: Connection) -> None:
        if request.target.endswith("limit=1"):
            await request.answer(200, listed(version="100"))
        elif "watch=1" not in request.target:
            lists[0] += 1
            await request.answer(200, listed(job_object(f"listed-{lists[0]}", "100"), version="100"))
        else:
            turn = min(watches[0], len(rounds) - 1)
            watches[0] += 1
            await rounds[turn](request)

    async def body():
        async with serving(behave) as (driver, server), watching(driver.watch_jobs()) as watcher:
            async with asyncio.timeout(15):
                while not is_enough(watcher):
                    if watcher.error:
                        raise watcher.error
                    await asyncio.sleep(0.02)
            return watcher, server

    return asyncio.run(body())


async def gone_as_status(request: Connection) -> None:
    await request.answer(410, status(410, "Expired", "too old resource version"))


async def gone_as_event(request: Connection) -> None:
    await request.begin()
    await request.line("ERROR", status(410, "Expired", "too old resource version"))
    await asyncio.sleep(30)


async def error_event(request: Connection) -> None:
    await request.begin()
    await request.line("ERROR", status(500, "InternalError", "etcd event received with PrevKv=nil"))
    await asyncio.sleep(30)


async def junk_line(request: Connection) -> None:
    await request.begin()
    await request.chunk(b"this is no JSON\n")
    await asyncio.sleep(30)


async def unknown_type(request: Connection) -> None:
    await request.begin()
    await request.line("SURPRISE", job_object("x"))
    await asyncio.sleep(30)


async def silence(request: Connection) -> None:
    await request.begin()
    await asyncio.sleep(30)


async def never_begins(request: Connection) -> None:
    await asyncio.sleep(30)


async def huge_line(request: Connection) -> None:
    await request.begin()
    while True:
        await request.chunk(b"x" * 10_000)


async def backwards(request: Connection) -> None:
    await request.begin()
    await request.line("ADDED", job_object("old", "7"))
    await asyncio.sleep(30)


async def backwards_bookmark(request: Connection) -> None:
    await request.begin()
    await request.line("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
    await asyncio.sleep(30)


async def cut_in_a_line(request: Connection) -> None:
    await request.begin()
    await request.chunk(b'{"type": "ADDED", "obj')
    request.cut()


async def healthy(request: Connection) -> None:
    await request.begin()
    await request.line("MODIFIED", job_object("seen", "150"))
    while True:
        await request.line("BOOKMARK", {"metadata": {"resourceVersion": "160"}})
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    "trouble",
    [
        gone_as_status,
        gone_as_event,
        error_event,
        junk_line,
        unknown_type,
        silence,
        never_begins,
        huge_line,
        backwards,
        backwards_bookmark,
        cut_in_a_line,
    ],
)
def test_a_watch_in_trouble_lists_anew(trouble):
    watcher, _ = watch_through([trouble, healthy], lambda seen: "seen" in seen.names("changed"))
    assert watcher.events[0].kind == "listed"
    assert watcher.names("listed") == ["listed-1", "listed-2"]
    assert "old" not in watcher.names("changed")


def test_bookmarks_prove_that_a_quiet_watch_lives():
    watcher, server = watch_through([healthy], lambda seen: sum(event.kind == "alive" for event in seen.events) >= 10)
    assert watcher.names("listed") == ["listed-1"]
    (watch,) = [target for target in server.targets() if "watch=1" in target]
    assert "allowWatchBookmarks=true" in watch
    assert "resourceVersion=100" in watch
    assert "timeoutSeconds=" in watch


def test_a_watch_that_ended_early_goes_on_where_it_stood():
    async def ends(request: Connection) -> None:
        await request.begin()
        await request.line("MODIFIED", job_object("one", "100"))
        await request.end()

    watcher, _ = watch_through([ends, healthy], lambda seen: "seen" in seen.names("changed"))
    assert watcher.names("listed") == ["listed-1"]
    assert watcher.names("changed")[:2] == ["one", "seen"]


def test_a_server_restored_from_an_old_backup_is_listed_anew():
    async def ends(request: Connection) -> None:
        await request.begin()
        await request.line("MODIFIED", job_object("one", "500"))
        await request.end()

    watcher, _ = watch_through([ends, healthy], lambda seen: "seen" in seen.names("changed"))
    assert watcher.names("listed") == ["listed-1", "listed-2"]


def test_events_split_anywhere_are_read_whole():
    async def split(request: Connection) -> None:
        await request.begin()
        events = [
            b'{"type":"ADDED","object":{"metadata":{"name":"j%d","resourceVersion":"%d"}}}\n' % (number, 200 + number)
            for number in range(3)
        ]
        raw = b"".join(events)
        for position in range(0, len(raw), 7):
            await request.chunk(raw[position : position + 7])
        await asyncio.sleep(30)

    watcher, _ = watch_through([split], lambda seen: len(seen.names("changed")) == 3)
    assert watcher.names("changed") == ["j0", "j1", "j2"]


@pytest.mark.parametrize(("code", "kind", "requests"), [(500, Ambiguous, 3), (401, AuthFailed, 1), (403, Refused, 1)])
def test_a_watch_that_cannot_be_kept_up_ends_with_the_reason(code, kind, requests):
    async def behave(request: Connection) -> None:
        await request.answer(code, status(code, "No"))

    async def body():
        async with serving(behave) as (driver, server):
            with pytest.raises(kind):
                await anext(driver.watch_jobs())
            return len(server.requests)

    assert asyncio.run(body()) == requests
