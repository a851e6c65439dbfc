"""The addresses outside the public internet: one list that limits both the gateway and the jobs' pods.

The list is written out because libraries change what they consider private from release to release.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

TRANSLATED = IPv6Network("64:ff9b::/96")
"""The prefix under which an IPv6-only network reaches IPv4 addresses (NAT64): their 32 bits come last."""
METADATA: frozenset[Address] = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # AWS, Azure, Google, Oracle, OpenStack and most others
        "169.254.170.2",  # AWS container credentials
        "169.254.170.23",  # AWS pod identities
        "169.254.42.42",  # Scaleway
        "169.254.0.23",  # Tencent
        "168.63.129.16",  # Azure's wire server; a public address by number
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle, the older cloud
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS pod identities
        "fd20:ce::254",  # Google
        "fd00:c1::a9fe:a9fe",  # Oracle
        "fd00:a9fe:a9fe::1",  # Akamai
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
)
LINK_LOCAL: tuple[Network, ...] = (ip_network("169.254.0.0/16"), ip_network("fe80::/10"))
_NOT_PUBLIC_IPV4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by a carrier's customers
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation, as 198.51.100/24 and 203.0.113/24
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_NOT_PUBLIC_IPV6 = tuple(
    IPv6Network(block)
    for block in (
        "::/3",  # everything outside 2000::/3: loopback, IPv4 mapped and translated (64:ff9b::), discard
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation, as 3fff::/20
        "2002::/16",  # 6to4, which contains an IPv4 address
        "3fff::/20",
        "4000::/2",
        "8000::/1",  # unique local (fc00::/7), link-local (fe80::/10), site-local (fec0::/10), multicast (ff00::/8)
    )
)


def translated(network: Network) -> Network:
    """An IPv4 block as NAT64 addresses; an IPv6 block as it is."""
    if isinstance(network, IPv6Network):
        return network
    start = int(TRANSLATED.network_address) + int(network.network_address)
    return IPv6Network((start, TRANSLATED.prefixlen + network.prefixlen))


def _also_translated(networks: tuple[Network, ...]) -> tuple[Network, ...]:
    return (*networks, *(translated(network) for network in networks if network.version == 4))  # noqa: PLR2004 - IPv4


NEVER_REACHED: tuple[Network, ...] = _also_translated(
    (*LINK_LOCAL, *sorted((ip_network(address) for address in METADATA), key=lambda block: (block.version, block)))
)
"""Link-local addresses and the metadata services of clouds: no setting opens these to jobs."""
NOT_PUBLIC: tuple[Network, ...] = (*_also_translated(_NOT_PUBLIC_IPV4), *_NOT_PUBLIC_IPV6)
"""The gateway and jobs may reach these addresses only if an administrator has listed them."""
