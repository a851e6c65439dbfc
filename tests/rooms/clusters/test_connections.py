"""From a registered cluster to its driver: one a process, made anew when address or credential change."""

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.drivers import AuthFailed, Unreachable
from clusters.drivers.connections import close_all, run
from clusters.drivers.registry import kind_of
from clusters.drivers.simulated import found_cluster, path_of
from clusters.models import Cluster
from clusters.queries import address_of_registered, driver_of
from tests.builders import make_cluster


@pytest.fixture(autouse=True)
def home(settings, tmp_path):
    settings.HOME = tmp_path
    yield tmp_path
    close_all()


@pytest.mark.django_db
def test_a_simulated_cluster_is_reached_by_its_name(home):
    identity = found_cluster(path_of(home, "simulated://east"))
    cluster = make_cluster(driver="simulated", server="simulated://east")
    assert run(driver_of(cluster.id).identity(), 5) == identity


def test_a_server_of_no_known_kind_has_no_driver():
    with pytest.raises(Unreachable, match="there is no driver for slurm://"):
        kind_of("slurm://east")


@pytest.mark.django_db
def test_the_driver_stays_until_the_address_changes_and_asking_costs_one_query(home):
    cluster = make_cluster(driver="simulated", server="simulated://east")
    driver = driver_of(cluster.id)
    with CaptureQueriesContext(connection) as queries:
        assert driver_of(cluster.id) is driver
    assert len(queries) == 1
    Cluster.objects.filter(id=cluster.id).update(server="simulated://west")
    assert driver_of(cluster.id) is not driver
    assert address_of_registered(cluster.id).server == "simulated://west"


@pytest.mark.django_db
def test_a_cluster_that_is_not_registered_or_has_no_credential_has_no_driver():
    with pytest.raises(Unreachable):
        driver_of(uuid4())
    with pytest.raises(AuthFailed):
        driver_of(make_cluster(server="https://127.0.0.1:6443").id)
