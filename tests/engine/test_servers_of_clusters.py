"""How far a server's URL and a kubeconfig may go, which addresses are public, and what a refusal is called."""

from ipaddress import ip_address, ip_network

import pytest

from clusters.engine.addresses import METADATA, NEVER_REACHED, NOT_PUBLIC, translated
from clusters.engine.egress import Server, judge, read_server
from clusters.engine.kubeconfig import read_kubeconfig
from foundation.problems import Invalid


def refused(read, *given):
    """(field, code) of the refusal."""
    with pytest.raises(Invalid) as caught:
        read(*given)
    (error,) = caught.value.errors
    return error.field, error.code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("http://k8s.example", "not_https"),
        ("https://user@k8s.example", "bad_url"),
        ("https://k8s.example/a?b", "bad_url"),
        ("https://k8s.example/a//b", "bad_url"),
        ("https://k8s.example/./b", "bad_url"),
        ("https://k8s.example/a/..", "bad_url"),
        ("https://k8s.example:", "bad_port"),
        ("https://k8s.example:0", "bad_port"),
        ("https://k8s.example:0443", "bad_port"),
        ("https://k8s.example:65536", "bad_port"),
        ("https://k8s.example:100000", "bad_port"),
        ("https://[1::2::3]", "bad_host"),
        ("https://127.1", "bad_host"),
        ("https://0x7f.0x1", "bad_host"),
        ("https://-a.example", "bad_host"),
        ("https://a..example", "bad_host"),
        (f"https://{'a' * 64}.example", "bad_host"),
        (f"https://{'.'.join(['a' * 49] * 5)}.abcd", "bad_host"),
        (f"https://k8s.example/{'a' * 481}", "too_long"),
    ],
)
def test_a_server_that_is_not_plain_is_refused_by_name(text, code):
    assert refused(read_server, text) == ("server", code)
    assert refused(read_server, text, "cluster.server") == ("cluster.server", code)


@pytest.mark.parametrize(
    "server",
    [
        Server("k8s.example", 1),
        Server("k8s.example", 65_535),
        Server(f"{'a' * 63}.example", 443),
        Server(f"{'.'.join(['a' * 49] * 5)}.abc", 443),
        Server("k8s.example", 443, f"/{'a' * 480}"),
    ],
)
def test_the_longest_and_largest_that_are_allowed_are_read(server):
    assert read_server(server.url) == server
    assert len(server.host) <= 253
    assert len(server.url) <= 500


def may_reach(address, *allowed, port=443, own=()):
    return judge([address], port, allowed=allowed, own=own).address == str(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "169.254.0.23", "168.63.129.16",
     "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe",
     "fd00:a9fe:a9fe::1", "fd00:42::42", "fe80::a9fe:a9fe"],
)  # fmt: skip
def test_a_metadata_service_is_reached_only_if_it_alone_is_listed(address):
    wide = "::/0" if ":" in address else "0.0.0.0/0"
    assert not may_reach(address)
    assert not may_reach(address, wide)
    assert may_reach(address, address)
    assert ip_address(address) in METADATA
    assert len(METADATA) == 15
    assert any(ip_address(address) in block for block in NEVER_REACHED)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("0.0.0.0", "0.255.255.255"), ("10.0.0.0", "10.255.255.255"), ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"), ("169.254.0.0", "169.254.255.255"), ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"), ("192.0.2.0", "192.0.2.255"), ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"), ("198.18.0.0", "198.19.255.255"), ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"), ("224.0.0.0", "255.255.255.255"), ("::", "1fff:ffff::"),
        ("2001::", "2001:1ff:ffff::"), ("2001:db8::", "2001:db8:ffff::"), ("2002::", "2002:ffff::"),
        ("3fff::", "3fff:fff:ffff::"), ("4000::", "ffff:ffff::"),
    ],
)  # fmt: skip
def test_no_block_is_public_from_its_first_address_to_its_last(first, last):
    assert not may_reach(first)
    assert not may_reach(last)


@pytest.mark.parametrize(
    "address",
    ["1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
     "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
     "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255",
     "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "2000::", "2001:200::", "2001:db7:ffff::",
     "2001:db9::", "2001:ffff::", "2003::", "3ffe:ffff::", "3fff:1000::"],
)  # fmt: skip
def test_the_neighbours_of_each_block_are_public(address):
    assert may_reach(address)


def test_blocks_are_also_closed_in_their_translated_form():
    assert translated(ip_network("10.0.0.0/8")) == ip_network("64:ff9b::a00:0/104")
    assert translated(ip_network("fd00::/8")) == ip_network("fd00::/8")
    assert ip_network("64:ff9b::a00:0/104") in NOT_PUBLIC
    assert ip_network("64:ff9b::a9fe:a9fe/128") in NEVER_REACHED
    assert judge(["64:ff9b::a00:1"], 443, allowed=["10.0.0.0/8"]).address == "64:ff9b::a00:1"
    assert may_reach("::ffff:10.0.0.1", "10.0.0.0/8")


def test_the_gateways_own_servers_are_never_clusters():
    own = {("203.0.114.5", 5432)}
    assert not may_reach("203.0.114.5", "203.0.114.5", port=5432, own=own)
    assert not may_reach("203.0.114.5", port=443, own=own)
    assert may_reach("203.0.114.5", "203.0.114.5", port=443, own=own)


def test_the_first_address_that_is_allowed_is_chosen():
    assert judge(["10.0.0.1", "odd", "8.8.8.8", "8.8.4.4"], 443, allowed=()).address == "8.8.8.8"
    assert judge([], 443, allowed=()).why_not == "the name has no address"
    assert judge(["odd"], 443, allowed=()).why_not == "the resolver did not return an address"


NAMED = "clusters: [{name: c, cluster: {}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"


@pytest.mark.parametrize(
    ("text", "field", "code"),
    [
        ("#" * (256 * 1024 + 1), "", "too_long"),
        ("a: [", "", "bad_yaml"),
        ("a: \x07", "", "bad_yaml"),
        ("a: &x 1", "", "yaml_alias"),
        ("a: !x 1", "", "yaml_tag"),
        ("--- {}\n--- {}", "", "too_deep_or_large"),
        ("a: " + "[" * 8 + "]" * 8, "", "too_deep_or_large"),
        ("a: [" + "1," * 4999 + "]", "", "too_deep_or_large"),
        ("[]", "", "wrong_type"),
        ("kind: Pod", "", "not_a_kubeconfig"),
        ("apiVersion: v2", "", "not_a_kubeconfig"),
        ("other: 1", ".other", "unknown_field"),
        ("'odd key': 1", ".(key)", "unknown_field"),
        ("preferences: {colors: x}", ".preferences", "wrong_type"),
        ("clusters: {}", ".clusters", "wrong_type"),
        ("clusters: [{name: a}]", ".clusters[0]", "required"),
        ("clusters: [{cluster: {}}]", ".clusters[0]", "required"),
        ("clusters: [{name: a, cluster: {}}, {name: a, cluster: {}}]", ".clusters[1].name", "given_twice"),
        ("clusters: [" + "{name: a, cluster: {}}," * 201 + "]", ".clusters", "too_many"),
        ("users: [{name: u, user: {exec: {}}}]", ".users[0].user.exec", "not_allowed"),
        ("clusters: [{name: c, cluster: {proxy-url: x}}]", ".clusters[0].cluster.proxy-url", "not_allowed"),
        ("contexts: []", ".current-context", "not_found"),
        (NAMED + "current-context: y", ".current-context", "not_found"),
        (NAMED.replace("cluster: c", "cluster: d"), ".contexts", "not_found"),
        (NAMED.replace("user: u}", "user: v}"), ".contexts", "not_found"),
        (NAMED.replace("user: {}", "user: {client-key-data: '*'}"), ".users[0].user.client-key-data", "bad_base64"),
    ],
)
def test_a_kubeconfig_is_refused_by_the_path_of_what_is_wrong(text, field, code):
    assert refused(read_kubeconfig, text) == (f"kubeconfig{field}", code)


def test_a_text_that_is_no_yaml_is_refused_with_the_line_where_its_grammar_ends():
    with pytest.raises(Invalid) as caught:
        read_kubeconfig("a: 1\nb: [\n")
    assert caught.value.errors[0].detail == "this is not plain YAML at line 3"


@pytest.mark.parametrize(
    "text",
    ["#" * (256 * 1024), "other: " + "[" * 7 + "]" * 7, "other: [" + "1," * 4996 + "]", "--- {other: 1}\n"],
)
def test_a_kubeconfig_up_to_the_limits_is_read(text):
    assert refused(read_kubeconfig, text)[1] in {"wrong_type", "unknown_field"}


def test_200_entries_are_read_and_the_one_that_is_meant_is_chosen():
    many = ",".join(f"{{name: c{number}, cluster: {{server: 'http://{number}.example'}}}}" for number in range(200))
    text = NAMED.replace("clusters: [{name: c, cluster: {}}]", f"clusters: [{many}]").replace(
        "cluster: c,", "cluster: c7,"
    )
    assert refused(read_kubeconfig, text) == ("kubeconfig.clusters[7].cluster.server", "not_https")


def test_a_token_of_digits_in_a_kubeconfig_stays_a_text():
    text = (
        "clusters: [{name: a, cluster: {server: 'https://k8s.example'}}]\n"
        "users: [{name: u, user: {token: 0123}}]\ncontexts: [{name: c, context: {cluster: a, user: u}}]\n"
    )
    found = read_kubeconfig(text)
    assert (found.server.host, found.secret.kind, found.secret.value) == ("k8s.example", "token", b"0123")
