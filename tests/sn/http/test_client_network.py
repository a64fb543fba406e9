"""Which addresses count as one client."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsparse.sn.http.client_network import network_of
from hsparse.sn.http.request_gate import stranger

HALF = st.integers(0, 2**64 - 1)


@given(HALF.filter(bool), HALF, HALF)
def test_all_addresses_of_a_network_of_64_bits_are_one(network: int, one: int, other: int) -> None:
    first, second = (str(IPv6Address(network << 64 | host)) for host in (one, other))
    assert network_of(first) == network_of(second) == f"{IPv6Address(network << 64)}/64"
    assert stranger(first) == stranger(second)
    assert network_of(str(IPv6Address((network ^ 1) << 64 | one))) != network_of(first)


@given(st.integers(0, 2**32 - 1))
def test_an_address_of_version_4_is_itself(number: int) -> None:
    address = str(IPv4Address(number))
    assert network_of(address) == network_of(f"::ffff:{address}") == address


@pytest.mark.parametrize("address", ["", "unix", None])
def test_what_is_no_address_is_itself(address: str | None) -> None:
    assert network_of(address) == address


def test_a_scope_is_left_out() -> None:
    assert network_of("fe80::1%eth0") == "fe80::/64"
