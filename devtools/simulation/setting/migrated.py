"""A migrated database with the simulated clock: made once for the same code, and copied for each process that runs seeds.

`python -m devtools.simulation.setting.migrated HOME` makes one in a separate process, since Django has one database for good.
"""

import os
import subprocess
import sys
from pathlib import Path

from devtools import prepared
from devtools.embedded import Unavailable, runtime_url
from devtools.simulation.core.database import Watch, configure, make_database, server, url_of

SOURCES = (
    "devtools/simulation/core/backend/*.py",
    "devtools/simulation/core/database.py",
    "devtools/simulation/core/database.sql",
    "devtools/simulation/setting/migrated.py",
    "devtools/simulation/setting/stage.py",
)


def fill(home: Path) -> None:
    """Gives a home the database. Call it from the main thread, before a server runs there. Raises Unavailable."""
    prepared.fill(home, prepared.Kind("simulation", _make, SOURCES))


def _make(home: Path) -> None:
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "devtools.simulation.setting.migrated", str(home)],
        cwd=prepared.PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode or (home / "postgres" / "postmaster.pid").exists():
        raise Unavailable(f"the simulation's database could not be migrated:\n{done.stdout}")
    # The server wrote without waiting for the disk: what is kept must outlive a power cut.
    os.sync()


def _migrate(home: Path) -> None:
    with server(home) as address:
        runtime_url(home, address)  # every prepared home has the passwords of both roles
        make_database(address)
        configure(url_of(address))
        from django.core.management import call_command  # noqa: PLC0415 - its settings are set now
        from django.db import connection  # noqa: PLC0415 - likewise

        from .stage import BEGAN_US  # noqa: PLC0415 - it needs Django

        watch = Watch(url_of(address))
        watch.set_clock(BEGAN_US)
        call_command("migrate", verbosity=0)
        connection.close()
        watch.close()


if __name__ == "__main__":
    os.environ.setdefault("REDIS_URL", "redis://:none@127.0.0.1:1/0")
    _migrate(Path(sys.argv[1]))
