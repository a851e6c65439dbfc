"""The parts of the test kubelet that need no control plane."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime

import pytest
from aiohttp import web

from devtools.embedded import free_port
from devtools.localfleet.kubelet.api import Api
from devtools.localfleet.kubelet.containers import _repository
from devtools.localfleet.kubelet.environment import Facts, Unresolvable, expand, variables_of
from devtools.localfleet.kubelet.logs import MOST_BYTES, Log, Question
from devtools.localfleet.kubelet.names import Addresses, Named, hosts_text, rewrite
from devtools.localfleet.kubelet.probes import Verdict
from devtools.localfleet.kubelet.reports import Report
from devtools.localfleet.kubelet.status import Conditions, lost, phase_of, running, terminated, waiting
from devtools.localfleet.kubelet.volumes import Unmountable, mounts_of


def test_references_are_replaced_once_and_only_those_that_are_known():
    known = {"A": "1", "B": "$(A)"}
    texts = ["$(A)$(B)", "$$(A)", "$(C)", "$A $", "$(A", "$$$(A)", "$( A)"]
    assert [expand(text, known) for text in texts] == ["1$(A)", "$(A)", "$(C)", "$A $", "$(A", "$1", "$( A)"]


def facts(**metadata):
    manifest = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata},
        "spec": {"nodeName": "host", "containers": [
            {"name": "main", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}, {"name": "other"}]},
    }  # fmt: skip
    return Facts(manifest, "127.16.1.2", "127.0.0.1", {"cpu": "64", "memory": "2Gi"})


@pytest.mark.parametrize(
    ("container", "reference", "text"),
    [
        ("main", {"resource": "limits.cpu", "divisor": "0"}, "2"),
        ("main", {"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ("main", {"resource": "requests.memory", "divisor": "1Mi"}, "1024"),
        ("other", {"resource": "limits.memory"}, str(2 * 1024**3)),
        ("other", {"resource": "requests.memory"}, "0"),
        ("other", {"resource": "limits.cpu", "containerName": "main"}, "2"),
    ],
)
def test_resources_are_given_in_their_divisor_rounded_up(container, reference, text):
    assert facts().resource(reference, container) == text


def test_labels_and_annotations_are_read_one_by_one_or_together():
    known = facts(labels={"b": 'say "x"', "a.b/c": "1"})
    assert known.field("metadata.labels['a.b/c']") == "1"
    assert known.field("metadata.labels['absent']") == ""
    assert known.field("metadata.labels") == 'a.b/c="1"\nb="say \\"x\\""'
    with pytest.raises(Unresolvable):
        known.field("status.secretIP")


@pytest.mark.parametrize(
    "entry",
    [
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "there", "key": "absent"}}}]},
        {"envFrom": [{"configMapRef": {"name": "absent"}}]},
        {"env": [{"name": "A", "valueFrom": {"somethingElse": {}}}]},
    ],
)
def test_a_variable_without_its_source_is_an_error_and_no_empty_text(entry):
    async def read(_kind, name):
        return {"k": b"v"} if name == "there" else None

    with pytest.raises(Unresolvable):
        asyncio.run(variables_of({"name": "main", **entry}, facts(), read, {}))


def named(hostname, address, *, namespace="n", subdomain="ring", is_ready=True, **labels):
    return Named(namespace, hostname, subdomain, address, labels or {"app": "x"}, is_ready)


def service(name, selector, *, namespace="n", cluster_ip="None", **spec):
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "spec": {"clusterIP": cluster_ip, "selector": selector, **spec}}


def resolved(text):
    return {name: line.split()[0] for line in reversed(text.splitlines()) for name in line.split()[1:]}


def test_a_headless_services_pods_have_names_and_others_have_none():
    me = named("ring-0", "127.1.1.1")
    others = [me, named("ring-1", "127.1.1.2"), named("late", "127.1.1.3", is_ready=False),
              named("alone", "127.1.1.4", subdomain=""), named("stranger", "127.1.1.5", namespace="m"),
              named("unlike", "127.1.1.6", app="y")]  # fmt: skip
    services = [service("ring", {"app": "x"}), service("web", {"app": "x"}, cluster_ip="10.0.0.7"),
                service("all", None), service("far", {"app": "x"}, namespace="m")]  # fmt: skip
    names = resolved(hosts_text(me, others, services))
    forms = ("ring-1.ring.n.svc.cluster.local", "ring-1.ring.n.svc", "ring-1.ring.n", "ring-1.ring")
    assert {names[form] for form in forms} == {"127.1.1.2"}
    assert (names["ring-0"], names["ring.n.svc"], names["localhost"]) == ("127.1.1.1", "127.1.1.4", "127.0.0.1")
    assert not {"late.ring", "alone.ring", "stranger.ring", "unlike.ring", "web", "all", "far"} & set(names)
    unready = hosts_text(me, others, [service("ring", {"app": "x"}, publishNotReadyAddresses=True)])
    assert resolved(unready)["late.ring"] == "127.1.1.3"


def test_a_hosts_file_stays_the_same_file_when_it_changes(tmp_path):
    file = tmp_path / "hosts"
    rewrite(file, "long text\n")
    before = file.stat().st_ino
    rewrite(file, "short\n")
    assert (file.read_text(), file.stat().st_ino) == ("short\n", before)


def test_addresses_are_unique_in_a_kubelet_and_among_kubelets_and_come_back_last():
    with closing(Addresses()) as one, closing(Addresses()) as other:
        taken = [one.take() for _ in range(300)]
        assert len({*taken, other.take()}) == 301
        assert all(address.startswith("127.") and not address.endswith((".0", ".255")) for address in taken)
        one.give_back(taken[0])
        assert one.take() not in taken


WAITS = {"state": waiting("ContainerCreating")}
RUNS = {"state": running("2026-01-01T00:00:00Z")}
FAILED = {"state": terminated(1, "Error")}
DONE = {"state": terminated(0, "Completed")}
AGAIN = {"state": waiting("CrashLoopBackOff"), "lastState": FAILED["state"]}


@pytest.mark.parametrize(
    ("mains", "is_over", "has_failed", "phase"),
    [
        ([WAITS, RUNS], False, False, "Pending"),
        ([DONE, RUNS], False, False, "Running"),
        ([AGAIN], False, False, "Running"),
        ([DONE, DONE], False, False, "Running"),
        ([DONE, DONE], True, False, "Succeeded"),
        ([DONE, FAILED], True, False, "Failed"),
        ([DONE, WAITS], True, False, "Failed"),
        ([{"state": lost()}], True, False, "Failed"),
        ([DONE], True, True, "Failed"),
    ],
)
def test_a_pods_phase_follows_from_its_containers(mains, is_over, has_failed, phase):
    assert phase_of(mains, is_over=is_over, has_failed=has_failed) == phase


def test_a_condition_keeps_the_time_of_its_last_change(monkeypatch):
    conditions = Conditions()
    for moment, holds in (("a", False), ("b", False), ("c", True)):
        monkeypatch.setattr("devtools.localfleet.kubelet.status.now", lambda moment=moment: moment)
        conditions.put("Ready", holds=holds)
        expected = {"a": "a", "b": "a", "c": "c"}[moment]
        assert conditions.all()[0]["lastTransitionTime"] == expected


def test_a_probe_needs_its_number_of_equal_results_in_a_row():
    verdict = Verdict({"failureThreshold": 2, "successThreshold": 2}, initially=True)
    results = [(verdict.add(result=result), verdict.passes) for result in (False, True, False, False, True, True)]
    assert results[:3] == [(False, True)] * 3
    assert results[3:] == [(True, False), (False, False), (True, True)]


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("a", "a"),
        ("a:1", "a"),
        ("registry.example/missing:v2", "registry.example/missing"),
        ("registry.example:5000/missing", "registry.example:5000/missing"),
        ("registry.example/missing@sha256:00", "registry.example/missing"),
        ("registry.example/missing:1@sha256:00", "registry.example/missing"),
    ],
)
def test_an_images_repository_is_found(image, repository):
    assert _repository(image) == repository


def test_a_subpath_that_leaves_its_volume_is_refused_and_nothing_is_made_outside(tmp_path):
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    (volume / "link").symlink_to(outside)
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "link/made"}]}
    with pytest.raises(Unmountable):
        mounts_of(container, {}, {"v": volume}, {})
    assert list(outside.iterdir()) == []


def test_outer_mounts_come_first_and_files_of_the_api_are_read_only(tmp_path):
    container = {"volumeMounts": [{"name": "v", "mountPath": "/a/b/"}, {"name": "s", "mountPath": "/a"}]}
    spec = {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x"}}]}
    found = mounts_of(container, spec, {"v": tmp_path, "s": tmp_path}, {})
    assert [(mount.target, mount.read_only) for mount in found] == [("/a", True), ("/a/b", False)]


async def filled(path, *pieces):
    output = asyncio.StreamReader()
    for piece in pieces:
        output.feed_data(piece)
    output.feed_eof()
    found = Log(path)
    await found.fill(output)
    return found


async def told(found, **question):
    return b"".join([piece async for piece in found.read(Question(**question))])


def test_a_log_keeps_lines_whole_and_the_last_one_without_its_end(tmp_path):
    async def use():
        found = await filled(tmp_path / "log", b"on", b"e\ntwo\nth", b"ree")
        assert await told(found) == b"one\ntwo\nthree\n"
        assert await told(found, tail_lines=1) == b"three\n"
        assert await told(found, tail_lines=0) == b""
        assert await told(found, limit_bytes=5) == b"one\nt"
        assert await told(found, follow=True, tail_lines=0) == b""
        assert await told(found, since=datetime(2999, 1, 1, tzinfo=UTC)) == b""
        assert found.ending() == "one\ntwo\nthree"

    asyncio.run(use())


def test_a_log_that_grows_without_end_is_cut_and_its_end_is_kept(tmp_path):
    async def use():
        found = await filled(tmp_path / "log", *[b"x" * 10_000 + b"\n"] * 1200, b"last\n")
        assert (tmp_path / "log").stat().st_size <= MOST_BYTES + 200_000
        assert (await told(found, tail_lines=1)) == b"last\n"

    asyncio.run(use())


class Lists:
    """An API server whose watches end in the ways that watches end."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)

    async def answer(self, request):
        if "watch" not in request.query:
            if not self.rounds:
                await asyncio.sleep(3600)
            names, self.events = self.rounds.pop(0)
            if names is None:
                return web.json_response({"message": "down"}, status=503)
            items = [{"metadata": {"uid": name}} for name in names]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        body = b"".join(json.dumps(event).encode() + b"\n" for event in self.events)
        reply = web.StreamResponse()
        await reply.prepare(request)
        for start in range(0, len(body), 7):
            await reply.write(body[start : start + 7])
        return reply


def event(kind, uid):
    return {"type": kind, "object": {"metadata": {"uid": uid}}}


@asynccontextmanager
async def serving(answer):
    """A client of an API server that answers so."""
    app, port = web.Application(), free_port()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    api = Api(f"http://127.0.0.1:{port}", "token", ssl.create_default_context())
    try:
        yield api
    finally:
        await api.close()
        await runner.cleanup()


LOST = 0
POD = {"metadata": {"namespace": "n", "name": "p", "uid": "u"}}


@pytest.mark.parametrize(
    ("deletes", "replies"),
    [
        (False, [500, 429, LOST, 503, 401, 200]),
        (False, [409, 200]),
        (False, [404]),
        (False, [422]),
        (True, [500, 429, LOST, 200]),
        (True, [404]),
        (True, [409]),
    ],
)
def test_a_status_is_written_and_a_pod_deleted_until_that_is_done_or_refused_for_good(monkeypatch, deletes, replies):
    monkeypatch.setattr("devtools.localfleet.kubelet.reports.RETRY_SECONDS", 0)
    left, bodies = list(replies), []

    async def answer(request):
        bodies.append(await request.json())
        if (status := left.pop(0)) == LOST:
            request.transport.abort()
        return web.json_response({}, status=status or 200)

    async def use():
        async with asyncio.timeout(5), serving(answer) as api:
            report = Report(POD, api, lambda: {"phase": "Failed"})
            if deletes:
                await report.delete()
            else:
                report.changed()
                await report.flush()

    asyncio.run(use())
    assert left == []
    expected = (
        {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}
        if deletes
        else {"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}
    )
    assert bodies == [expected] * len(replies)


def test_nothing_is_written_once_the_object_is_gone():
    async def answer(_request):
        raise AssertionError

    async def use():
        async with asyncio.timeout(5), serving(answer) as api:
            report = Report(POD, api, dict)
            report.is_gone = True
            report.changed()
            await report.flush()
            await report.delete()

    asyncio.run(use())


GONE = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


def test_a_list_is_followed_through_410s_errors_and_lost_watches(monkeypatch):
    monkeypatch.setattr("devtools.localfleet.kubelet.api.RETRY_SECONDS", 0)
    lists = Lists(
        (["a"], [event("ADDED", "b"), event("BOOKMARK", ""), GONE]),
        (None, []),
        (["b", "c"], [event("DELETED", "b")]),
        (["c"], []),
    )

    async def use():
        seen = []
        with suppress(TimeoutError):
            async with asyncio.timeout(5), serving(lists.answer) as api:
                async for found in api.follow("/list"):
                    seen.append(
                        "." if found is None else f"{'-' if found.is_gone else '+'}{found.seen['metadata']['uid']}"
                    )
                    if seen.count(".") == 3:
                        break
        return " ".join(seen)

    assert asyncio.run(use()) == "+a . +b -a +b +c . -b +c ."
