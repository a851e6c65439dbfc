"""What the gateway does with the added driver `echo`. `test_where_to_add` runs this in a copy that has it."""

import pytest

from clusters.drivers.connections import close_all, run
from clusters.drivers.simulated import found_cluster
from clusters.queries import driver_of
from tests.builders import make_cluster


@pytest.mark.django_db
def test_its_clusters_are_reached(settings, tmp_path):
    settings.HOME = tmp_path
    identity = found_cluster(tmp_path / "echo.sqlite3")
    cluster = make_cluster(driver="echo", server="echo://east")
    try:
        assert run(driver_of(cluster.id).identity(), 5) == identity
    finally:
        close_all()
