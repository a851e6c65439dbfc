"""Static files: collected once for the same sources, whole or not at all, named by their content, small on the wire."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.test import Client

from tests.builders import make_user

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r'(?:src|href)="(/static/[^"#]+)')


@pytest.fixture
def small(tmp_path, settings):
    """Runs `collectstatic` on two sources of its own, into a folder of its own; returns what it prints."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "a.css").write_text("body { background: url(b.svg) }" * 100)
    (sources / "b.svg").write_text("<svg/>" * 100)
    own: dict[str, Any] = {
        "STATICFILES_FINDERS": ["django.contrib.staticfiles.finders.FileSystemFinder"],
        "STATICFILES_DIRS": [str(sources)],
        "STATIC_ROOT": str(tmp_path / "staticfiles" / "served"),
    }
    for name, value in own.items():
        setattr(settings, name, value)

    def run():
        told = StringIO()
        call_command("collectstatic", interactive=False, stdout=told)
        return told.getvalue()

    collect: Any = run
    collect.sources, collect.served, collect.settings = sources, Path(own["STATIC_ROOT"]), own
    return collect


def manifest_of(served):
    return json.loads((served / "staticfiles.json").read_text())["paths"]


def assert_whole(served):
    """Every file of the manifest is there, with the content that its name says, and compressed."""
    for name, hashed in manifest_of(served).items():
        assert (served / hashed).stat().st_size > 0
        assert (served / f"{hashed}.br").exists(), name
        assert (served / f"{hashed}.gz").exists(), name
        assert not (served / name).exists(), "no name that may be kept too long"


def left_over(served):
    return [path.name for path in served.parent.iterdir() if path.name not in {"served", "stamp", "lock"}]


def test_the_same_sources_are_collected_once_and_changed_ones_again(small):
    assert "2 static files copied" in small()
    assert_whole(small.served)
    first = manifest_of(small.served)
    assert first["b.svg"] in (small.served / first["a.css"]).read_text()
    assert "up to date" in small()

    (small.sources / "b.svg").write_text("<svg></svg>" * 100)
    assert "2 static files copied" in small()
    assert_whole(small.served)
    second = manifest_of(small.served)
    assert second["b.svg"] != first["b.svg"]
    assert second["a.css"] != first["a.css"]
    assert (small.served / first["a.css"]).exists(), "processes that started before still serve it"
    for path in small.served.iterdir():
        path.unlink()
    assert "2 static files copied" in small()
    assert left_over(small.served) == []


def test_several_that_start_together_collect_once(small):
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: small(), range(4)))
    assert sum("copied" in one for one in told) == 1
    assert_whole(small.served)
    assert left_over(small.served) == []


# Stops the command where it is about to do something: `{place}` is a function of `foundation...collectstatic`.
HANG = """
import sys, time
import django
from django.conf import settings
for name, value in {settings!r}.items():
    setattr(settings, name, value)
django.setup()
import foundation.management.commands.collectstatic as command
def hang(*_, **__):
    print("there", flush=True)
    time.sleep(600)
{patch}
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "collectstatic", "--noinput"])
"""
PLACES = {
    "between two moves": "real = command.os.replace\ncommand.os.replace = lambda *a: hang() if str(a[1]).endswith('.svg') else real(*a)",
    "before the manifest": "real = command.os.replace\ncommand.os.replace = lambda *a: hang() if str(a[1]).endswith('json') else real(*a)",
    "before the stamp": "command.write_whole = hang",
}


@pytest.mark.parametrize("place", PLACES)
def test_one_that_is_killed_leaves_nothing_half_done(small, place):
    small()
    before = manifest_of(small.served)
    (small.sources / "b.svg").write_text("<svg></svg>" * 100)
    with subprocess.Popen(
        [sys.executable, "-c", HANG.format(patch=PLACES[place], settings=small.settings)],
        cwd=ROOT, env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGKILL)
    assert_whole(small.served)
    assert (manifest_of(small.served) == before) == (place != "before the stamp")
    assert "2 static files copied" in small()
    assert_whole(small.served)
    assert manifest_of(small.served) != before
    assert left_over(small.served) == []


@pytest.mark.django_db
@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_files_are_named_by_their_content_kept_for_good_and_sent_compressed(encoding):
    for name in ("css/switchyard.css", "js/switchyard.js", "vendor/tabler/tabler.min.css", "icons/sprite.svg"):
        url = staticfiles_storage.url(name)
        assert re.search(r"\.[0-9a-f]{12}\.(css|js|svg)$", url), url
        response = Client().get(url, headers={"Accept-Encoding": encoding})
        assert response.status_code == 200
        assert response["Content-Encoding"] == encoding
        assert response["Cache-Control"] == "max-age=315360000, public, immutable"
        assert "Accept-Encoding" in response["Vary"]
        response.close()
        assert Client().get(f"/static/{name}").status_code == 404


@pytest.mark.django_db
def test_every_file_that_a_page_names_is_there():
    client = Client()
    client.force_login(make_user())
    pages = (Client().get("/login/"), *(client.get(path) for path in ("/", "/no/such/page/", "/api/v1/docs/")))
    named = [url for page in pages for url in NAMED.findall(page.content.decode())]
    assert len(named) > 12
    for url in named:
        response = client.get(url)
        assert response.status_code == 200, url
        response.close()
