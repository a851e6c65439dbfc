"""Serves samples from a real Prometheus on loopback, which scrapes nothing."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from devtools.prometheus import programs

READY_SECONDS = 60
POLL_SECONDS = 0.1
LISTENS = re.compile(r'msg="Listening on".*address=(127\.0\.0\.1:\d+)')


class Failed(Exception):
    """promtool refused the samples, or Prometheus did not start; the message has the end of what it printed."""


@contextmanager
def served(folder: Path, samples: str) -> Iterator[str]:
    """The URL of a Prometheus that has these samples, in OpenMetrics with timestamps. Its files are in the folder, which is empty.

    Raises Failed, programs.BuildFailed.
    """
    found = programs.locate()
    text, data, config, log = (folder / name for name in ("samples.om", "data", "prometheus.yml", "log"))
    text.write_text(samples)
    config.write_text("")
    made = subprocess.run(
        [found / "promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        raise Failed(f"promtool refused the samples: {made.stderr[-1000:]}")
    argv = ["setpriv", "--pdeathsig", "KILL", str(found / "prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y", "--web.listen-address=127.0.0.1:0"]  # fmt: skip
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield _ready(process, log)
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < until:
        listens = LISTENS.search(log.read_text(errors="replace"))
        if listens and _is_ready(url := f"http://{listens[1]}"):
            return url
        time.sleep(POLL_SECONDS)
    raise Failed(f"Prometheus did not start: {log.read_text(errors='replace')[-1000:]}")


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=READY_SECONDS):  # noqa: S310 - of our own making
            return True
    except (URLError, OSError):
        return False
