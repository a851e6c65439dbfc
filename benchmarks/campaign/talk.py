"""What a campaign says while it runs."""

import sys
import time


def say(line: str) -> None:
    """With the time, as the logs of the gateway and of the control planes show it."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {line}\n")
    sys.stdout.flush()
