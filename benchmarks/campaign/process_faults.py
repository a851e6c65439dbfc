"""Faults of the gateway's own processes, of its broker, and of its versions: F1, F4, F6, F7, F8, F11, F12."""

import json
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import psutil
import psycopg
import redis

from devtools.embedded import stop
from tests.faults.versions import GONE_AGAIN, NEXT_VERSION, send_next_versions_message, start_another_set

from .schedule import Planned
from .stage import Begin, NothingToBreak, Stage, Undo, suspend

QUEUES = "swy-broker-*"
PILED_SECONDS = 3.0
"""Workers stand still so long, so that messages are in their queues."""


def crash_between_steps(stage: Stage, planned: Planned) -> Undo:
    """The next worker that passes the step dies."""
    flag = stage.stand.flags / planned.target
    flag.touch()

    def was_passed() -> bool:
        is_left = flag.exists()
        flag.unlink(missing_ok=True)
        return not is_left

    return was_passed


def kill_role(stage: Stage, planned: Planned) -> None:
    if not stage.stand.gateway.processes(planned.target):
        raise NothingToBreak
    stage.stand.kill_all(planned.target)


def freeze_role(stage: Stage, planned: Planned) -> Undo:
    return suspend(stage.stand.gateway.processes(planned.target))


def replace_role(stage: Stage, planned: Planned) -> None:
    """As an upgrade does: it is asked to end, and another takes its place."""
    found = stage.stand.gateway.processes(planned.target)
    if not found:
        raise NothingToBreak
    with suppress(psutil.NoSuchProcess):
        found[0].send_signal(signal.SIGTERM)


def empty_broker(stage: Stage, planned: Planned) -> None:
    del planned
    try:
        stage.stand.gateway.flush_broker()
    except redis.RedisError:
        raise NothingToBreak from None


def kill_broker(stage: Stage, planned: Planned) -> None:
    try:
        stage.stand.gateway.kill(_broker(planned))
    except (IndexError, psutil.NoSuchProcess):
        raise NothingToBreak from None


def freeze_broker(stage: Stage, planned: Planned) -> Undo:
    return suspend(stage.stand.gateway.processes(_broker(planned)))


def _broker(planned: Planned) -> str:
    return f"{planned.target}-server"


def multiply_messages(stage: Stage, planned: Planned) -> Undo:
    """Every message that waits arrives three times, the last first, and once more when the fault is healed."""
    del planned
    go_on = suspend(stage.stand.gateway.processes("worker"))
    try:
        time.sleep(PILED_SECONDS)
        kept = _triple(stage)
    except redis.RedisError:
        raise NothingToBreak from None
    finally:
        go_on()
    if not kept:
        raise NothingToBreak

    def send_again() -> bool:
        with suppress(redis.RedisError), _client(stage) as client:
            for queue, messages in kept.items():
                client.rpush(queue, *messages)
        return True

    return send_again


def _triple(stage: Stage) -> Mapping[bytes, list[bytes]]:
    """What waited, by queue."""
    kept: dict[bytes, list[bytes]] = {}
    with _client(stage) as client:
        for queue in client.scan_iter(match=QUEUES):
            if client.type(queue) != b"list":
                continue
            messages: list[bytes] = client.lrange(queue, 0, -1)
            if messages:
                kept[queue] = messages
                client.delete(queue)
                client.rpush(queue, *[message for message in reversed(messages) for _ in range(3)])
    return kept


def _client(stage: Stage) -> redis.Redis:
    return redis.Redis.from_url(stage.stand.gateway.environment["REDIS_URL"], socket_timeout=5)


def skew_role(stage: Stage, planned: Planned) -> Undo:
    role, seconds = planned.target.split("+")
    stage.skews.write_text(json.dumps({role: int(seconds)}))

    def right() -> bool:
        stage.skews.unlink(missing_ok=True)
        return True

    return right


def expect_next_version(stage: Stage, planned: Planned) -> Undo:
    """Its migrations have run, and its wake-ups and messages come; then it is taken back."""
    del planned

    def take_back() -> bool:
        _migrate(stage, GONE_AGAIN)
        return True

    try:
        _migrate(stage, NEXT_VERSION)
    except NothingToBreak:
        take_back()
        raise
    with suppress(Exception):  # the broker may be gone itself
        send_next_versions_message(stage.stand)
    return take_back


def _migrate(stage: Stage, statements: Sequence[str]) -> None:
    """As a migrator does, which gives up rather than wait for a lock: the process that has it may be stopped."""
    address = stage.stand.databases.primary.address
    try:
        with psycopg.connect(address, autocommit=True, connect_timeout=5, options="-c lock_timeout=5s") as connection:
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.OperationalError:  # also that a lock is not available
        raise NothingToBreak from None


def double_everything(stage: Stage, planned: Planned) -> Undo:
    """Another set of all processes beside the first, singletons too."""
    del planned
    started = start_another_set(stage.stand)

    def end() -> bool:
        were_there = any(process.poll() is None for process in started)
        for process in started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in started:
            stop(process, first=signal.SIGTERM, grace_seconds=20)
        return were_there

    return end


WAYS: Mapping[str, Begin] = {
    "a worker dies between two steps": crash_between_steps,
    "a role's processes are killed": kill_role,
    "a role's processes stand still": freeze_role,
    "a role's processes are replaced": replace_role,
    "the broker is emptied": empty_broker,
    "the broker is killed": kill_broker,
    "the broker stands still": freeze_broker,
    "messages are tripled, turned round and sent again later": multiply_messages,
    "a process's clock is wrong": skew_role,
    "the next version's tables and messages are there": expect_next_version,
    "there are two of every process": double_everything,
}
