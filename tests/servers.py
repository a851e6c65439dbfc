"""Loaded before Django's settings: real PostgreSQL and Valkey for the whole run, unless DATABASE_URL and REDIS_URL name some.

With xdist the controller starts them and the workers inherit the addresses.
"""

import atexit
import base64
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from devtools.embedded import servers

os.environ.setdefault("SWITCHYARD_SECRET_KEY", "tests-only-" + "k" * 50)
os.environ.setdefault("SWITCHYARD_KEY_RING", "test:" + base64.b64encode(b"t" * 32).decode())
os.environ.setdefault("SWITCHYARD_EGRESS_ALLOW", "127.0.0.0/8")
os.environ.setdefault("SWITCHYARD_ALLOW_SIMULATION", "1")
# Many processes of one kind run at the same time; a test of figures names a port.
os.environ.setdefault("SWITCHYARD_METRICS_PORT", "0")

if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
    home = Path(tempfile.mkdtemp(prefix="switchyard-tests-", dir="/var/tmp"))
    home.chmod(0o755)
    stack = ExitStack()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    atexit.register(stack.close)
    os.environ.update(stack.enter_context(servers(home, durable=False)))
