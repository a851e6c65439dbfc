"""What a process imports is never garbage: it is not searched for any, while the process starts or when it ends."""

import subprocess
import sys

from devtools.check import PLACEHOLDERS
from devtools.serve import PROJECT

SCRIPT = """
import atexit, gc, django
atexit.register(lambda: print(gc.isenabled(), len(gc.get_objects()) < 1000))  # runs after what is registered later
django.setup()
imported_later = [[] for _ in range(10_000)]
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_what_is_imported_is_searched_for_garbage_neither_at_the_start_nor_at_the_end():
    environment = {**PLACEHOLDERS, "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True True", "True True"]
