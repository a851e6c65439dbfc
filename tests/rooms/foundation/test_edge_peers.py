from ipaddress import ip_network

import pytest

from foundation.edge.peers import Caller, Trust, caller_of, source_of

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
X = Trust(PROXIES)
FORWARDED = Trust(PROXIES, "forwarded")


def called(peer, *headers, trust=X):
    return caller_of(peer, headers, trust)


def test_a_peer_that_is_no_proxy_of_ours_is_the_caller_whatever_it_says():
    said = [("X-FORWARDED-FOR", "192.0.2.1"), ("FORWARDED", "for=192.0.2.1"), ("X-FORWARDED-PROTO", "https")]
    for trust in (X, FORWARDED, Trust()):
        assert called("198.51.100.7", *said, trust=trust) == Caller("198.51.100.7")


def test_the_last_hop_that_is_no_proxy_of_ours_is_the_caller():
    assert called("10.0.0.1", ("X-FORWARDED-FOR", "203.0.113.9, 192.0.2.1, 10.2.2.2")) == Caller("192.0.2.1")
    assert called("10.0.0.1", ("X-FORWARDED-FOR", "203.0.113.9"), ("X-FORWARDED-FOR", "192.0.2.1")) == Caller(
        "192.0.2.1"
    )
    assert called("::ffff:10.0.0.1", ("X-FORWARDED-FOR", "[2001:db8::1]:443, fd00::5")) == Caller("2001:db8::1")
    assert called("10.0.0.1", ("X-FORWARDED-FOR", "10.3.3.3")) == Caller("10.3.3.3")
    assert called("10.0.0.1") == Caller("10.0.0.1")


@pytest.mark.parametrize(
    "junk", ["", "unknown", "_hidden", "192.0.2.1.5", "192.0.2.999", "fe80::1%eth0", "'", "x" * 9000, "0x7f.1", "127.1"]
)
def test_a_hop_that_is_no_address_is_not_believed_nor_what_lies_behind_it(junk):
    assert called("10.0.0.1", ("X-FORWARDED-FOR", f"192.0.2.1, {junk}")) == Caller("10.0.0.1")
    assert called("10.0.0.1", ("X-FORWARDED-FOR", f"192.0.2.1, {junk}, 10.2.2.2")) == Caller("10.2.2.2")


def test_only_the_header_that_our_proxies_write_is_read():
    both = [
        ("X-FORWARDED-FOR", "192.0.2.1"),
        ("FORWARDED", 'for="[2001:db8::9]:1";proto=https, for=192.0.2.77;by=10.0.0.1'),
    ]
    assert called("10.0.0.1", *both) == Caller("192.0.2.1")
    assert called("10.0.0.1", *both, trust=FORWARDED) == Caller("192.0.2.77")


def test_the_scheme_is_what_the_nearest_proxy_says():
    assert called("10.0.0.1", ("X-FORWARDED-FOR", "192.0.2.1"), ("X-FORWARDED-PROTO", "https")).scheme == "https"
    assert called("10.0.0.1", ("X-FORWARDED-PROTO", "https, http")).scheme == "http"
    assert called("10.0.0.1", ("X-FORWARDED-PROTO", "javascript")).scheme == ""
    assert called("10.0.0.1", ("FORWARDED", "for=192.0.2.1;proto=https"), trust=FORWARDED).scheme == "https"


def test_a_long_list_of_hops_is_read_from_its_end_only_so_far():
    assert called("10.0.0.1", ("X-FORWARDED-FOR", ",".join(["192.0.2.1"] + ["10.9.9.9"] * 10_000))) == Caller(
        "10.9.9.9"
    )


def test_of_ipv6_a_source_is_the_network_that_one_client_has_at_will():
    assert source_of("2001:db8::1:2:3:4") == source_of("2001:db8::9") == "2001:db8::/64"
    assert source_of("192.0.2.1") == source_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert source_of("nonsense") == ""
