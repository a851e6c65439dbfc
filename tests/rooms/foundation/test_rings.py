"""What comes out of the broker is made here from a routine's name, whatever was planted in it."""

import base64
import json
import os
import pickle
import uuid
from typing import Any

import pytest
import redis
from django.conf import settings

from config.celery import QUEUES, app

CYCLE = "federation.tasks.run_scheduling_cycle"
NOTHING = [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


class Runs:
    """Unpickled, it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def stranger():
    """A client with every right over the keys."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.delete(*map(key, QUEUES))
        yield client
        client.delete(*map(key, QUEUES))


def key(queue):
    return f"swy-broker-{queue}"


def encoded(body):
    return base64.b64encode(body if isinstance(body, bytes) else json.dumps(body).encode()).decode()


def message(task=CYCLE, queue="cycle", body=NOTHING, content_type="application/json", encoding="utf-8", **headers):
    tag = str(uuid.uuid4())
    return {
        "body": encoded(body),
        "content-type": content_type,
        "content-encoding": encoding,
        "headers": {"lang": "py", "task": task, "id": tag, "root_id": tag, "argsrepr": "()", "kwargsrepr": "{}", **headers},
        "properties": {
            "correlation_id": tag, "reply_to": "stolen", "delivery_mode": 2, "priority": 0, "body_encoding": "base64",
            "delivery_tag": tag, "delivery_info": {"exchange": queue, "routing_key": queue},
        },
    }  # fmt: skip


def delivered(queue="cycle", seconds=1.2):
    """What a worker would be handed, until nothing more comes."""
    got = []

    def take(message):
        message.ack()
        got.append(message)

    with (
        app.connection_for_read() as connection,
        connection.channel() as channel,
        app.amqp.TaskConsumer(channel, queues=[app.amqp.queues[queue]], on_message=take),
    ):
        while True:
            try:
                connection.drain_events(timeout=seconds)
            except TimeoutError:
                return got


def test_what_the_bell_sends_arrives(stranger):
    for routine in settings.ROUTINES.values():
        app.send_task(routine["task"], queue=routine["queue"], expires=60, ignore_result=True, retry=False)
    tasks = [got.headers["task"] for queue in QUEUES for got in delivered(queue)]
    assert sorted(tasks) == sorted(routine["task"] for routine in settings.ROUTINES.values())
    assert list(stranger.scan_iter(match="swy-broker-*")) == []


@pytest.mark.parametrize(
    "forged",
    [
        message(body=[["; rm -rf /"], {"cluster": "all"}, {"callbacks": [{"task": CYCLE}], "chain": [{"task": "x"}]}]),
        message(eta="2999-01-01T00:00:00+00:00", retries=10**9, timelimit=[10**9, 10**9], argsrepr="x\ny", group="g"),
        message(content_type="application/x-python-serialize", encoding="binary", body=pickle.dumps(NOTHING)),
        message(body=pickle.dumps(Runs("never")), content_type="application/x-yaml"),
        message() | {"body": 5, "properties": None},
    ],
    ids=["arguments and callbacks", "delays and limits", "pickle", "yaml", "no body"],
)
def test_a_forged_ring_is_worth_no_more_than_a_true_one(stranger, forged):
    stranger.lpush(key("cycle"), json.dumps(forged))
    (got,) = delivered()
    assert got.decode() == NOTHING
    assert got.content_type == "application/json"
    assert got.headers["eta"] is None
    assert got.headers["retries"] == 0
    assert got.headers["timelimit"] == [None, None]
    assert got.headers["argsrepr"] == "()"
    assert got.properties["reply_to"] == ""
    assert got.headers["id"] != forged["headers"]["id"]


def hostile():
    deep = "[" * 100_000
    return {
        "another task": json.dumps(message("celery.backend_cleanup")),
        "a map over a routine": json.dumps(message("celery.starmap", body=[[{"task": CYCLE}, [[1]] * 9], {}, {}])),
        "a routine of another queue": json.dumps(message("federation.tasks.sweep")),
        "an unknown task": json.dumps(message("os.system", body=[["true"], {}, {}])),
        "a task that is a list": json.dumps(message(["os.system"])),
        "a time that is none": json.dumps(message(expires="soon")),
        "a time without end": json.dumps(message(expires="9" * 10_000)),
        "headers that are a list": json.dumps(message() | {"headers": []}),
        "no headers": json.dumps({"task": CYCLE, "args": [1], "kwargs": {}, "id": "1"}),
        "a number": b"5",
        "null": b"null",
        "no JSON": b"\x80\x04garbage",
        "a pickle": pickle.dumps(Runs("never")),
        "a type that cannot be made": b'{"__type__": "uuid", "__value__": 5}',
        "an unknown type": b'{"__type__": "os", "__value__": "x"}',
        "too deep": deep.encode(),
        "empty": b"",
    }


def test_what_rings_nothing_is_dropped_and_told_and_the_next_ring_is_heard(stranger, caplog):
    for planted in hostile().values():
        stranger.lpush(key("cycle"), planted)
    stranger.lpush(key("cycle"), json.dumps(message()))
    (got,) = delivered()
    assert got.headers["task"] == CYCLE
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("security: ")]
    assert len(told) == len(hostile())
    assert all(len(line) < 200 for line in told)


@pytest.mark.parametrize("make", ["set", "sadd", "hset"])
def test_a_queue_of_another_kind_is_removed_and_rings_are_heard_again(stranger, make):
    arguments = {"set": ["x"], "sadd": ["x"], "hset": ["x", "y"]}[make]
    getattr(stranger, make)(key("cycle"), *arguments)
    assert delivered() == []
    stranger.lpush(key("cycle"), json.dumps(message()))
    assert len(delivered()) == 1


def test_routes_and_work_under_way_are_neither_read_from_redis_nor_left_there(stranger):
    planted = {"_kombu.binding.cycle", "unacked", "unacked_index", "unacked_mutex"}
    for name in planted:
        stranger.set(f"swy-broker-{name}", "planted")
    app.send_task(CYCLE, queue="cycle", expires=60, ignore_result=True, retry=False)
    assert len(delivered()) == 1
    for name in planted:
        assert stranger.getdel(f"swy-broker-{name}") == b"planted"


def test_workers_take_no_commands_and_no_serializer_but_json():
    assert app.conf.worker_enable_remote_control is False
    assert app.conf.accept_content == ["json"]
    assert app.conf.result_accept_content == ["json"]
    assert {app.conf.task_serializer, app.conf.result_serializer, app.conf.event_serializer} == {"json"}
    control: Any = app.control
    assert control.mailbox.accept == ["json"]
