"""Where a request comes from, as limits and turns count it: what one client has to itself.

A client has one IPv4 address, or shares it, and any number of IPv6 addresses in a network of 64 bits (RFC 4291,
section 2.5.4).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Network, ip_address

CLIENT_BITS = 64
MOST = 10_000
"""Addresses whose networks are remembered."""


@lru_cache(MOST)
def network_of(address: str | None) -> str | None:
    """Return an IPv4 address as it is, also of one mapped to IPv6, and of other IPv6 addresses the network of 64 bits.

    What is no address, as that of a socket without one, is returned as it is.
    """
    if address is None:
        return None
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((int(found), CLIENT_BITS), strict=False))
