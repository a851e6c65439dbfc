"""Asks clusters what the web process asks at registration and the worker at reconciliation: `-m tests.hostile_caller ID…`."""

import sys
from contextlib import suppress
from uuid import UUID

import django


def main(cluster_ids: list[UUID]) -> None:
    """Every question once, whatever the answers are; a defect ends the process with a trace."""
    from clusters.drivers import DriverError  # noqa: PLC0415 - models come after django.setup()
    from clusters.drivers.connections import run  # noqa: PLC0415 - likewise
    from clusters.operations.probing import probe_registered  # noqa: PLC0415 - likewise
    from clusters.queries import driver_of  # noqa: PLC0415 - likewise

    for cluster_id in cluster_ids:
        driver = driver_of(cluster_id)
        with suppress(DriverError):
            probe_registered(driver)
        with suppress(DriverError):
            run(driver.list_jobs(), 30)
        with suppress(DriverError):
            run(driver.read_log("swy-a", "p", tail_lines=10, limit_bytes=262_144), 10)
        with suppress(DriverError):
            run(driver.list_pods("swy-a", "j"), 10)


if __name__ == "__main__":
    django.setup()
    main([UUID(each) for each in sys.argv[1:]])
