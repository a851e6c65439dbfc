"""Histories of true concurrent operations are linearizable, as Porcupine judges them; doctored ones are refused."""

import json
import random
import threading
import time

import pytest

from devtools.porcupine.checking import check
from devtools.porcupine.history import NANOSECONDS, History
from federation import operations
from federation.engine.lifecycle import JOB_MOVES
from federation.models import Job
from foundation import leases
from foundation.leases import LeaseLost, Tenure
from foundation.problems import Conflict
from quotas.operations import end_holds, take_holds
from tests.builders import bearer, bind, hold_request, make_limit, make_spec, make_tenant, make_user, submit
from tests.concurrency.test_quota_races import at_once
from tests.concurrency.test_submit import post_job
from tests.kept_sessions import end_sessions
from tests.live import gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)
CLIENTS = 8
NEVER_TOLD = 0.15
"""The share of operations whose answer the client does not learn, as after a lost connection."""


@pytest.fixture
def history():
    return History(JOB_MOVES)


@pytest.fixture
def judged(history, tmp_path):
    """Whether Porcupine accepts the history, or this changed copy of its lines."""

    def judge(change=lambda lines: None):
        path = history.write(tmp_path / "history.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines[1:])
        path.write_text("\n".join(map(json.dumps, lines)))
        verdict = check(path)
        assert verdict.operations == len(history.operations)
        assert "Unknown" not in {one["result"] for one in verdict.refused}, "not decided in time"
        return verdict.refused == ()

    return judge


def together(work, clients=CLIENTS):
    """`work(client, luck)` for each client in its own thread, begun together."""
    at_once([lambda client=client: work(client, random.Random(client)) for client in range(clients)])


class Told(random.Random):
    """The luck of a client that learns every answer."""

    def random(self):
        return 1.0


def tell(operation, luck, **answer):
    if luck.random() >= NEVER_TOLD:
        operation.answer = answer


def the_answer(lines, **wanted):
    """The first operation that was answered so."""
    return next(line for line in lines if wanted.items() <= (line.get("answer") or {}).items())


def refused(line):
    return line["op"] == "take" and "answer" in line and not line["answer"]["taken"]


def test_submits_with_shared_keys(history, judged):
    user = make_user()
    bind(user, "acme", "submitter")
    make_tenant("acme/research")
    headers = bearer(user)

    def work(client, luck):
        for _ in range(6):
            key, name = f"key-{luck.randrange(4)}", f"job-{luck.randrange(2)}"
            with history.asks("submit", key, client, "submit", body=name) as asked:
                answer = post_job(headers, {"tenant": "acme/research", **make_spec(name=name)}, key=key)
                if answer.status_code == 201:
                    tell(asked, luck, job=answer.json()["id"], replayed="Idempotent-Replayed" in answer.headers)
                else:
                    codes = {"idempotency_in_progress": "in_progress", "idempotency_key_reused": "other_body"}
                    tell(asked, luck, refused=codes[answer.json()["code"]])

    together(work)
    assert judged()
    assert not judged(lambda lines: the_answer(lines, replayed=True)["answer"].update(job="another"))


def test_holds_against_a_limit(history, judged):
    limit = make_limit("acme", nominal="8")
    with history.asks("hold", "acme", CLIENTS, "limit", amount=limit.nominal) as asked:
        asked.answer = {}

    def work(client, luck):
        for _ in range(8):
            request = hold_request("acme", {"gpu": 1000 * luck.randint(1, 4)})
            what = {"id": str(request.holder_id), "amount": request.amounts["gpu"]}
            with history.asks("hold", "acme", client, "take", **what) as asked:
                refusal = take_holds([request])[request.holder_id]
                tell(asked, luck, taken=refusal is None)
            if refusal is None:
                for _ in range(2):
                    with history.asks("hold", "acme", client, "end", **what) as asked:
                        tell(asked, luck, ended=end_holds({request.holder_id: "voided"}) == 1)

    together(work)
    assert {one.answer["taken"] for one in history.operations if one.op == "take" and one.answer} == {True, False}
    assert judged()
    assert not judged(lambda lines: [line["answer"].update(taken=True) for line in lines if refused(line)])


def test_leases(history, judged):
    lasting, brief = "lasting", "brief"

    def work(client, luck):
        for _ in range(4):
            for name, seconds in ((lasting, 60.0), (brief, 0.03)):
                use(client, luck, name, seconds)

    def use(client, luck, name, seconds):
        ttl = int(seconds * NANOSECONDS)
        with history.asks("lease", name, client, "acquire", ttl=ttl) as asked:
            token = leases.acquire(name, str(client), ttl_seconds=seconds)
            asked.answer = {"token": token or 0}
        if token is None:
            return
        time.sleep(luck.random() * 0.04)
        with history.asks("lease", name, client, "renew", token=token, ttl=ttl) as asked:
            tell(asked, luck, held=leases.renew(name, token, ttl_seconds=seconds))
        with history.asks("lease", name, client, "write", token=token) as asked:
            tell(asked, luck, accepted=writes(name, token))
        with history.asks("lease", name, client, "release", token=token) as asked:
            tell(asked, luck, held=leases.release(name, token))
        with history.asks("lease", name, client, "write", token=token) as asked:
            asked.answer = {"accepted": writes(name, token)}

    together(work)
    use(CLIENTS, Told(), lasting, 60.0)  # the race may have left no such answer
    assert judged()
    assert not judged(lambda lines: write_after_release(lines, lasting)["answer"].update(accepted=True))
    first = next(one.answer["token"] for one in history.operations if one.op == "acquire" and one.answer["token"])
    assert not judged(lambda lines: [line["answer"].update(token=first) for line in lines if line["op"] == "acquire"])


def write_after_release(lines, name):
    """A write with a token that its holder has released for certain."""
    released = {
        line["args"]["token"] for line in lines if line["op"] == "release" and line.get("answer") == {"held": True}
    }
    refused = {"accepted": False}
    return next(
        line
        for line in lines
        if line["op"] == "write"
        and line["object"] == name
        and line.get("answer") == refused
        and line["args"]["token"] in released
    )


def writes(name, token):
    try:
        with Tenure(name, token).fence():
            return True
    except LeaseLost:
        return False


def test_the_states_of_jobs(history, judged, cluster, submitter):
    jobs = [submit(submitter, gpu_job(f"job-{number}", gpus=1, seconds=1)).id for number in range(4)]
    ended = threading.Event()

    def reads(client, luck):
        while not ended.is_set():
            job = luck.choice(jobs)
            with history.asks("job", str(job), client, "read") as asked:
                tell(asked, luck, state=Job.objects.get(id=job).state)
            time.sleep(0.05)

    def cancels(client, luck):
        for job in jobs[: client % 2 + 1]:
            time.sleep(luck.random() * 3)
            with history.asks("job", str(job), client, "cancel") as asked:
                try:
                    tell(asked, luck, state=operations.request_cancellation(submitter, job).state)
                except Conflict:
                    tell(asked, luck, conflict=Job.objects.get(id=job).state)

    def observes(*_):
        try:
            observe_until(lambda: not Job.objects.filter(finished_at=None).exists())
        finally:
            ended.set()
            end_sessions()

    works = [observes, cancels, cancels, reads, reads]
    together(lambda client, luck: works[client](client, luck), clients=len(works))
    for job in [*jobs, jobs[-1]]:
        with history.asks("job", str(job), 0, "read") as asked:
            asked.answer = {"state": Job.objects.get(id=job).state}
    assert judged()
    assert not judged(lambda lines: lines[-1]["answer"].update(state="queued"))
