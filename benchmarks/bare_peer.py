"""The reference of `bench-api`: one Django view that inserts one row, under the same gunicorn and PostgreSQL.

It has no part of the gateway: no authentication, no validation, no audit, no outbox.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
import httpx
import psycopg
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from devtools.embedded import free_port, owner_url, spawn, stop, tail
from devtools.trial import Gateway

PROJECT = Path(__file__).resolve().parent.parent
TABLE = "bare_peer"
PATH = "api/v1/jobs"


def insert_one(request: HttpRequest) -> HttpResponse:
    """Stores the body."""
    body = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (body) VALUES (%s) RETURNING id", [json.dumps(body)])
        (number,) = cursor.fetchone()
    return JsonResponse({"id": number}, status=201)


urlpatterns = [path(PATH, insert_one)]


def application_of(url: str) -> object:
    """The WSGI application; gunicorn calls it in a separate process."""
    found = psycopg.conninfo.conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found["dbname"],
        "USER": found["user"],
        "PASSWORD": found["password"],
        "HOST": found["host"],
        "PORT": found["port"],
        "CONN_MAX_AGE": None,
    }
    settings.configure(ROOT_URLCONF=__name__, DATABASES={"default": database}, ALLOWED_HOSTS=["127.0.0.1"])
    django.setup()
    return get_wsgi_application()


@contextmanager
def bare_peer(gateway: Gateway) -> Iterator[str]:
    """Its address; it runs beside this gateway's web processes, with equal numbers of processes and threads."""
    url, port = gateway.environment["DATABASE_URL"], free_port()
    with psycopg.connect(owner_url(gateway.home, url), autocommit=True) as owner:
        owner.execute(
            f"CREATE TABLE {TABLE} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body jsonb NOT NULL,"
            " at timestamptz NOT NULL DEFAULT now())"
        )
        owner.execute(f"GRANT INSERT, SELECT ON {TABLE} TO PUBLIC")
    workers, threads = os.environ.get("SWITCHYARD_WEB_WORKERS", "2"), os.environ.get("SWITCHYARD_WEB_THREADS", "8")
    log = gateway.home / "bare_peer.log"
    process = spawn(
        [
            sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--workers", workers, "--threads", threads,
            "--worker-class", "gthread", "--keep-alive", "30", "--no-control-socket", f"{__name__}:application_of({url!r})",
        ],
        log=log, env=dict(os.environ), cwd=PROJECT,
    )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}"
        with httpx.Client(transport=httpx.HTTPTransport(retries=30)) as client:
            answer = client.post(f"{address}/{PATH}", json={})
        if answer.status_code != httpx.codes.CREATED:
            raise SystemExit(f"the bare peer answered {answer.status_code}:\n{tail(log)}")
        yield address
    finally:
        stop(process)
