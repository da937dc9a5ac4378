"""Own addresses and the interfaces they belong to."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from skippyd.net.interfaces import _ipv4_interfaces, interface_of


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]
)
def test_loopback_is_lo(address: str) -> None:
    assert interface_of(address) == "lo"


@pytest.mark.parametrize("address", ["192.0.2.199", "2001:db8::7", "fe80::1%nowhere9"])
def test_an_address_that_nobody_here_has_belongs_to_nothing(address: str) -> None:
    assert interface_of(address) is None


@pytest.mark.parametrize("text", ["", "node-a", "1.2.3", "\0"])
def test_what_is_no_address_belongs_to_nothing(text: str) -> None:
    assert interface_of(text) is None


def test_the_listed_addresses_hold_loopback() -> None:
    assert _ipv4_interfaces()[IPv4Address("127.0.0.1")] == "lo"
