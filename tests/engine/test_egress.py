"""Which addresses the gateway connects to."""

from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.drivers.resolve import AddressRefused, checked_address
from clusters.engine.egress import Server, judge, read_server
from foundation.problems import Invalid

OWN = {("203.0.113.5", 5432)}


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("https://k8s.example", Server("k8s.example", 443)),
        ("https://K8s.Example:6443", Server("k8s.example", 6443)),
        ("https://203.0.113.9:443/", Server("203.0.113.9", 443)),
        ("https://[2001:DB8::1]:6443", Server("2001:db8::1", 6443)),
        ("https://rancher.example/k8s/clusters/c-m-1/", Server("rancher.example", 443, "/k8s/clusters/c-m-1")),
    ],
)
def test_a_plain_url_is_read_and_written_in_one_form(text, server):
    assert read_server(text) == server
    assert read_server(server.url) == server


@given(st.text(max_size=60))
def test_any_text_is_either_a_url_that_reads_back_or_a_refusal(text):
    try:
        server = read_server(f"https://{text}")
    except Invalid as refusal:
        assert refusal.errors[0].field == "server"  # noqa: PT017 - either way is fine, but only these two
    else:
        assert read_server(server.url) == server
        assert "@" not in server.url


def chosen(*addresses, allowed=(), port=443):
    return judge(addresses, port, allowed=allowed, own=OWN).address


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address):
    assert chosen(address) == address


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "172.31.0.1", "192.168.1.1", "127.0.0.1", "::1", "fd00::1", "fe80::1", "169.254.1.1", "100.64.0.1",
     "198.18.0.1", "192.0.2.1", "203.0.113.1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "240.0.0.1", "255.255.255.255",
     "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001::1", "::10.0.0.1", "fec0::1"],
)  # fmt: skip
def test_everything_else_is_refused_unless_listed(address):
    assert chosen(address) == ""
    inside = ip_address(address)
    if isinstance(inside, IPv6Address) and inside.ipv4_mapped:
        inside = inside.ipv4_mapped
    if address == "64:ff9b::a00:1":
        inside = ip_address("10.0.0.1")
    assert chosen(address, allowed=[str(inside)]) == str(ip_address(address))


@pytest.mark.parametrize("address", ["169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"])
def test_metadata_services_need_their_exact_address_listed(address):
    wide = ["0.0.0.0/0", "::/0", "169.254.0.0/16"]
    assert chosen(address) == chosen(address, allowed=wide) == ""
    assert chosen(address, allowed=[address]) == address


def test_the_first_acceptable_address_of_a_name_is_taken():
    assert chosen("127.0.0.1", "8.8.8.8", "1.1.1.1") == "8.8.8.8"
    assert chosen() == ""
    assert chosen("not an address") == ""


def test_our_own_servers_are_never_called_on_their_port_and_elsewhere_only_when_listed():
    own = {("8.8.4.4", 5432)}
    assert judge(["8.8.4.4"], 5432, allowed=["8.8.4.4/32"], own=own).address == ""
    assert judge(["8.8.4.4"], 443, allowed=[], own=own).address == ""
    assert judge(["8.8.4.4"], 443, allowed=["8.8.4.0/24"], own=own).address == "8.8.4.4"
    assert judge(["::ffff:8.8.4.4"], 5432, allowed=["8.8.4.4"], own=own).address == ""


def test_a_cluster_beside_our_own_servers_is_refused_with_the_setting_that_admits_it():
    own = {("127.0.0.1", 5432)}
    assert "SWITCHYARD_EGRESS_ALLOW" in judge(["127.0.0.1"], 6443, allowed=[], own=own).why_not
    assert judge(["127.0.0.1"], 6443, allowed=["127.0.0.0/8"], own=own).address == "127.0.0.1"
    assert "own servers" in judge(["127.0.0.1"], 5432, allowed=["127.0.0.0/8"], own=own).why_not


@pytest.mark.parametrize("ports", ["5001", "5001,5002"])
def test_every_host_of_the_database_is_a_server_of_our_own(settings, monkeypatch: pytest.MonkeyPatch, ports: str):
    """DATABASE_URL may name several hosts, with one port for all or one for each."""
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", "127.0.0.1,127.0.0.2")
    monkeypatch.setitem(settings.DATABASES["default"], "PORT", ports)
    settings.EGRESS_ALLOW = ["127.0.0.0/8"]
    for host, port in (("127.0.0.1", "5001"), ("127.0.0.2", ports.rpartition(",")[2])):
        with pytest.raises(AddressRefused):
            checked_address(read_server(f"https://{host}:{port}"))
    assert checked_address(read_server("https://127.0.0.2:5003")) == "127.0.0.2"


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_what_it_maps_to(address):
    plain, mapped = chosen(str(address)), chosen(f"::ffff:{address}")
    assert bool(plain) == bool(mapped)


@given(st.ip_addresses())
def test_what_is_not_global_is_never_allowed_unlisted(address):
    if chosen(str(address)):
        assert address.is_global
        assert not address.is_multicast
