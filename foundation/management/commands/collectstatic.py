"""`manage.py collectstatic`: Django's own, run once for the same sources and never half done.

It collects, hashes and compresses files in a separate folder, then moves them into STATIC_ROOT one by one, the manifest
last. So a process that starts meanwhile finds all files of the old manifest or all of the new one. Files of earlier
manifests remain, because processes that started with those still serve them. The stamp next to STATIC_ROOT records what
was collected. It is written last, so a run that was killed is repeated.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.management.commands import collectstatic
from django.core.files.storage import storages

from foundation.files import write_whole

STAMP, LOCK, UNDER_WAY = "stamp", "lock", "collecting-"
MADE_WITH = ("django", "whitenoise", "brotli")
"""Packages that affect the result of collecting."""


class Command(collectstatic.Command):
    help = f"{collectstatic.Command.help} Does nothing where that was done for the same sources."

    def handle(self, **options: Any) -> str | None:
        """Passes `--dry-run`, `--link` or `--clear` to Django's own command."""
        options["ignore_patterns"] = [*options["ignore_patterns"], *settings.STATIC_NOT_SERVED]
        if options["dry_run"] or options["link"] or options["clear"]:
            return super().handle(**options)
        root = Path(settings.STATIC_ROOT)
        wanted = digest_of_sources(options["ignore_patterns"])
        if _stamp_of(root) == wanted:
            return "static files are up to date" if options["verbosity"] else None
        root.mkdir(parents=True, exist_ok=True)
        with _alone_in(root.parent):
            if _stamp_of(root) == wanted:
                return None
            with tempfile.TemporaryDirectory(prefix=UNDER_WAY, dir=root.parent) as made:
                configured: dict[str, Any] = settings.STORAGES["staticfiles"]
                place = {**configured.get("OPTIONS", {}), "location": made}
                self.storage = storages.create_storage({**configured, "OPTIONS": place})
                told = super().handle(**{**options, "interactive": False})
                _publish(Path(made), root, last=self.storage.manifest_name)
            write_whole(root.parent / STAMP, wanted.encode())
            return told


def digest_of_sources(ignore_patterns: list[str]) -> str:
    """A hash of the sources and tools: equal hashes give equal results."""
    told = hashlib.sha256(repr((settings.STORAGES["staticfiles"], ignore_patterns)).encode())
    for package in MADE_WITH:
        told.update(f"{package} {version(package)}\n".encode())
    hidden = apps.get_app_config("staticfiles").ignore_patterns  # type: ignore[attr-defined]
    for finder in get_finders():
        for path, storage in sorted(finder.list([*ignore_patterns, *hidden]), key=lambda found: found[0]):
            content = Path(storage.path(path)).read_bytes()
            told.update(f"{getattr(storage, 'prefix', '')} {path} {hashlib.sha256(content).hexdigest()}\n".encode())
    return told.hexdigest()


def _stamp_of(root: Path) -> str:
    """The files in STATIC_ROOT; none if it was never filled, or emptied by hand."""
    try:
        return (root.parent / STAMP).read_text(encoding="utf-8") if any(root.iterdir()) else ""
    except FileNotFoundError:
        return ""


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Excludes other processes that collect there, and removes what a killed one left."""
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(f"{UNDER_WAY}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _publish(made: Path, root: Path, *, last: str) -> None:
    """Moves every file to its place, each whole; the one named `last` after all others."""
    files = sorted(path for path in made.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path == made / last):
        target = root / path.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)  # noqa: PTH105 - as in `files`
