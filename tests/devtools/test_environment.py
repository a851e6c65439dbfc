"""Readers of the environment: a wrong value stops the boot and names itself."""

from decimal import Decimal
from ipaddress import ip_network

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment

NEVER = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::254/128"))


@pytest.mark.parametrize(
    ("value", "blocks"),
    [(None, ["0.0.0.0/0", "::/0"]), ("", []), (" 10.0.0.0/8 , fd00::/8,", ["10.0.0.0/8", "fd00::/8"])],
)
def test_blocks_are_read_or_the_default_counts(monkeypatch, value, blocks):
    monkeypatch.delenv("BLOCKS", raising=False)
    if value is not None:
        monkeypatch.setenv("BLOCKS", value)
    assert environment.networks("BLOCKS", "0.0.0.0/0,::/0", never=NEVER) == blocks


@pytest.mark.parametrize(
    "value",
    ["169.254.169.254/32", "169.254.0.0/16", "fd00:ec2::254", "10.0.0.1/8", "all", "1.2.3.4/33", "10.0.0.0/8;::/0"],
)
def test_a_block_that_is_none_or_that_is_never_opened_stops_the_boot(monkeypatch, value):
    monkeypatch.setenv("BLOCKS", value)
    with pytest.raises(ImproperlyConfigured, match="BLOCKS"):
        environment.networks("BLOCKS", never=NEVER)


@pytest.mark.parametrize("value", ["often", "NaN", "Infinity", "-0.1", "100.1", ""])
def test_a_decimal_that_is_none_or_out_of_bounds_stops_the_boot(monkeypatch, value):
    monkeypatch.setenv("RATE", value)
    with pytest.raises(ImproperlyConfigured, match="RATE"):
        environment.decimal("RATE", "0.05", most=100)


def test_a_decimal_is_read_or_the_default_counts(monkeypatch):
    monkeypatch.delenv("RATE", raising=False)
    assert environment.decimal("RATE", "0.05", most=100) == Decimal("0.05")
    monkeypatch.setenv("RATE", " 2.5 ")
    assert environment.decimal("RATE", "0.05", most=100) == Decimal("2.5")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ("hugepages-2Mi",)),
        ("", ()),
        (" rdma/hca , hugepages-1Gi,rdma/hca,", ("hugepages-1Gi", "rdma/hca")),
    ],
)
def test_resources_are_read_once_each_and_sorted(monkeypatch, value, names):
    monkeypatch.delenv("NAMES", raising=False)
    if value is not None:
        monkeypatch.setenv("NAMES", value)
    assert environment.resources("NAMES", "hugepages-2Mi") == names


@pytest.mark.parametrize(
    "value", ["cpu", "rdma", "nvidia.com/gpu", "rdma/hca;x/y", 'x/"]', ",".join(f"example.com/r{n}" for n in range(65))]
)
def test_a_resource_that_jobs_can_never_request_stops_the_boot(monkeypatch, value):
    monkeypatch.setenv("NAMES", value)
    with pytest.raises(ImproperlyConfigured, match="NAMES"):
        environment.resources("NAMES", "")


def test_the_origins_of_sessions_are_read_or_there_are_none(monkeypatch):
    monkeypatch.delenv("ORIGIN", raising=False)
    assert environment.session_origin("ORIGIN", ["gateway.example"]) is None
    monkeypatch.setenv("ORIGIN", "https://*.sessions.example")
    found = environment.session_origin("ORIGIN", ["gateway.example", "localhost", "[::1]"])
    assert found is not None
    assert (found.base, found.is_secure) == ("sessions.example", True)


@pytest.mark.parametrize(
    ("value", "hosts"),
    [
        ("https://sessions.example", []),
        ("https://*.gateway.example", ["gateway.example"]),
        ("https://*.example", ["gateway.example"]),
        ("https://*.sessions.example", [".example"]),
        ("https://*.sessions.example", ["*"]),
        ("http://*.localhost:8000", ["127.0.0.1", "localhost", "[::1]"]),
        ("http://*.sessions.example", []),
    ],
)
def test_an_origin_of_sessions_where_the_gateways_cookies_go_stops_the_boot(monkeypatch, value, hosts):
    monkeypatch.setenv("ORIGIN", value)
    with pytest.raises(ImproperlyConfigured, match="ORIGIN"):
        environment.session_origin("ORIGIN", hosts)
