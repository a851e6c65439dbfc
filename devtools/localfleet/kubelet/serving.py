"""What the API server asks a kubelet for: `/containerLogs` and `/portForward`. Only the API server's certificate is accepted."""

import ssl
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

from .forwarding import forward
from .logs import Log, Question
from .pods import Pod

Pods = Callable[[], Iterable[Pod]]


async def serve(host: str, port: int, certificate: Path, key: Path, pods: Pods) -> web.AppRunner:
    """A running server; its own certificate is also the only one that it trusts."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL  # /healthz is open

    async def logs(request: web.Request) -> web.StreamResponse:
        return await _logs(request, pods())

    async def ports(request: web.Request) -> web.StreamResponse:
        _require_the_api_server(request)
        _pod_of(request, pods())
        return await forward(request)

    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", health)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    app.router.add_get("/portForward/{namespace}/{pod}", ports)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=context).start()
    return runner


async def _logs(request: web.Request, pods: Iterable[Pod]) -> web.StreamResponse:
    _require_the_api_server(request)
    found = _log_of(request, pods)
    reply = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await reply.prepare(request)
    async for piece in found.read(_question(request)):
        await reply.write(piece)
    await reply.write_eof()
    return reply


def _require_the_api_server(request: web.Request) -> None:
    if request.transport is None or not request.transport.get_extra_info("peercert"):
        raise web.HTTPUnauthorized(text="only the API server may ask for that")


def _pod_of(request: web.Request, pods: Iterable[Pod]) -> Pod:
    wanted = (request.match_info["namespace"], request.match_info["pod"])
    pod = next((one for one in pods if (one.namespace, one.name) == wanted), None)
    if pod is None:
        raise web.HTTPNotFound(text=f"pod {wanted[1]} is not on this node")
    return pod


def _log_of(request: web.Request, pods: Iterable[Pod]) -> Log:
    pod = _pod_of(request, pods)
    name = request.match_info["container"]
    container = next((one for one in pod.containers if one.name == name), None)
    if container is None:
        raise web.HTTPNotFound(text=f"container {name} not found in pod {pod.name}")
    number = 1 if request.query.get("previous") == "true" else 0
    if len(container.logs) <= number:
        what = "previous terminated container" if number else "container"
        raise web.HTTPBadRequest(text=f'{what} "{name}" in pod "{pod.name}" has no log: it has not run')
    return container.logs[number]


def _question(request: web.Request) -> Question:
    query = request.query
    try:
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = datetime.fromtimestamp(time.time(), UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        return Question(
            follow=query.get("follow") == "true",
            timestamps=query.get("timestamps") == "true",
            tail_lines=int(query["tailLines"]) if "tailLines" in query else None,
            limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
            since=since,
        )
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
