"""What the network policies of a namespace open and what they never do, judged address by address."""

from ipaddress import ip_address, ip_network
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.addresses import NOT_PUBLIC
from clusters.engine.egress import judge
from federation.engine.objects.isolation import NODE_LOCAL_DNS, gang_policy, namespace_policies
from federation.engine.objects.rendering import Identity

DEFAULT = ("0.0.0.0/0", "::/0")
NAT64 = "64:ff9b::/96"
METADATA = [
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192",
    "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:a9fe:a9fe::1", "fd00:42::42",
    "fe80::a9fe:a9fe", "64:ff9b::169.254.169.254", "64:ff9b::168.63.129.16", "64:ff9b::100.100.100.200",
]  # fmt: skip


def reaches(address, allowed=DEFAULT, port=443):
    """An independent reading of the namespace's policy: whether a pod may send to this address and port."""
    [policy] = namespace_policies("swy-a", "main", allowed)
    for rule in policy["spec"]["egress"]:
        if any(entry["port"] == port for entry in rule.get("ports", [{"port": port}])):
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                inside = ip_address(address) in ip_network(block["cidr"])
                if inside and not any(ip_address(address) in ip_network(hole) for hole in block.get("except", ())):
                    return True
    return False


@pytest.mark.parametrize("address", ["8.8.8.8", "140.82.112.3", "2606:4700::1111"])
def test_public_addresses_are_reached_unless_nothing_is_allowed(address):
    assert reaches(address)
    assert not reaches(address, ())


@pytest.mark.parametrize("address", ["10.1.2.3", "172.31.0.1", "192.168.7.7", "100.64.0.9", "127.0.0.1", "fd12::1"])
def test_private_addresses_are_reached_only_where_their_block_was_named(address):
    assert not reaches(address)
    block = str(ip_network(f"{address}/{16 if '.' in address else 32}", strict=False))
    assert reaches(address, (*DEFAULT, block))
    assert reaches(address, (block,))


@pytest.mark.parametrize(
    "allowed",
    [
        DEFAULT,
        ("0.0.0.0/0", "::/0", "100.64.0.0/10", "fd00::/8", "168.63.0.0/16", "fc00::/6", NAT64),
        ("64:ff9b::/32", "64:ff9b::a000:0/104", "192.0.0.0/24"),
    ],
)
@pytest.mark.parametrize("address", [*METADATA, "169.254.1.1", "fe80::1", "169.254.20.11"])
def test_attack_37_metadata_services_and_link_local_addresses_are_never_reached(address, allowed):
    assert not reaches(address, allowed)
    assert not reaches(address, allowed, port=53)


@pytest.mark.parametrize(
    "address",
    ["::ffff:8.8.8.8", "::ffff:10.0.0.1", "::10.0.0.1", "2002:a00:1::", "64:ff9b::a00:1", "64:ff9b:1::1", "2001::1",
     "100.64.0.1", "192.0.2.7", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "224.0.0.1",
     "255.255.255.255", "0.0.0.0", "::", "::1", "100::1", "2001:db8::1", "3fff::1", "5f00::1", "fec0::1", "ff02::1"],
)  # fmt: skip
def test_addresses_that_hide_another_or_are_nobodys_stay_closed_by_default(address):
    assert not reaches(address)


near = st.sampled_from(NOT_PUBLIC).flatmap(
    lambda block: st.integers(
        max(int(block[0]) - 2, 0), min(int(block[-1]) + 2, 2 ** (32 if block.version == 4 else 128) - 1)
    ).map(type(block[0]))
)


@given(st.one_of(st.ip_addresses(), near))
def test_pods_reach_by_default_no_address_that_the_gateway_itself_would_refuse(address):
    is_taken = judge([str(address)], 443, allowed=()).address != ""
    if reaches(str(address)):
        assert is_taken
    if address.version == 4 or address in ip_network("2000::/3"):
        assert reaches(str(address)) == is_taken


@given(st.one_of(st.ip_addresses(v=4), near.filter(lambda address: address.version == 4)))
def test_a_translated_address_is_open_exactly_when_what_it_stands_for_is(address):
    hidden = str(ip_network(NAT64)[int(address)])
    assert not reaches(hidden)
    assert reaches(hidden, (*DEFAULT, NAT64)) == reaches(str(address))
    assert (judge([hidden], 443, allowed=()).address != "") == reaches(str(address))


def test_names_are_asked_for_in_the_clusters_own_service_and_on_the_node_alone():
    [policy] = namespace_policies("swy-a", "main", ())
    [rule] = policy["spec"]["egress"]
    assert {(entry["protocol"], entry["port"]) for entry in rule["ports"]} == {("UDP", 53), ("TCP", 53)}
    assert reaches(NODE_LOCAL_DNS.partition("/")[0], (), port=53)
    assert not reaches(NODE_LOCAL_DNS.partition("/")[0], (), port=80)


def test_holes_lie_strictly_inside_their_block_and_none_inside_another():
    for allowed in (DEFAULT, ("10.0.0.0/8",), ("0.0.0.0/1", "128.0.0.0/1"), ("169.0.0.0/8", "fc00::/7", NAT64)):
        [policy] = namespace_policies("swy-a", "main", allowed)
        for peer in policy["spec"]["egress"][-1]["to"]:
            holes: list[Any] = [ip_network(hole) for hole in peer["ipBlock"].get("except", ())]
            block = ip_network(peer["ipBlock"]["cidr"])
            assert all(hole != block and hole.subnet_of(block) for hole in holes)
            assert not any(a != b and a.version == b.version and a.subnet_of(b) for a in holes for b in holes)


def test_attack_37_every_pod_is_cut_off_both_ways():
    [policy] = namespace_policies("swy-a", "main", DEFAULT)
    assert policy["metadata"]["namespace"] == "swy-a"
    assert policy["spec"]["podSelector"] == {}
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]


def test_only_the_pods_of_one_attempt_talk_to_each_other():
    whose = Identity("main", UUID(int=1), "acme", UUID(int=2), UUID(int=3), 1, "0" * 32)
    policy = gang_policy("swy-a", whose, {"swy-x": "uid-x", "swy-x-1": "uid-y"})
    mates = {"matchLabels": {"switchyard.dev/attempt": str(UUID(int=3))}}
    assert policy["spec"] == {
        "podSelector": mates,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": mates}]}],
        "egress": [{"to": [{"podSelector": mates}]}],
    }
    assert [(owner["kind"], owner["name"], owner["uid"]) for owner in policy["metadata"]["ownerReferences"]] == [
        ("Job", "swy-x", "uid-x"), ("Job", "swy-x-1", "uid-y")
    ]  # fmt: skip
