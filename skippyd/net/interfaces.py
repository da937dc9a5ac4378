"""Which network interface an own address belongs to, without netlink.

A hardened service may not open netlink sockets; the kernel tells the same by an ioctl
and in /proc.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path


SIOCGIFCONF = 0x8912

_RECORD_BYTES = 40  # struct ifreq of 64-bit Linux
_NAME_BYTES = 16
_ADDRESS_AT = 20
_MOST_RECORDS = 1024
_IPV6_TABLE = Path("/proc/net/if_inet6")


def interface_of(address: str) -> str | None:
    """Return the name of the interface that holds an own address; None when none does.

    Args:
        address: A numeric address, as `getsockname` gives it; a zone is dropped.
    """
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped:
        wanted = wanted.ipv4_mapped
    if wanted.is_loopback:
        # All of 127.0.0.0/8 is there, though only 127.0.0.1 is listed.
        return "lo"
    if isinstance(wanted, ipaddress.IPv6Address):
        return _ipv6_interface(wanted)
    return _ipv4_interfaces().get(wanted)


def _ipv4_interfaces() -> dict[ipaddress.IPv4Address, str]:
    records = array.array("B", bytes(_RECORD_BYTES * _MOST_RECORDS))
    where, length = records.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFCONF, struct.pack("iL", length, where))
    used = struct.unpack("iL", answer)[0]
    data = records.tobytes()[:used]
    found = {}
    for begin in range(0, used, _RECORD_BYTES):
        record = data[begin : begin + _RECORD_BYTES]
        # An alias is listed as eth0:1 and belongs to eth0.
        name = record[:_NAME_BYTES].split(b"\0", 1)[0].split(b":", 1)[0]
        packed = record[_ADDRESS_AT : _ADDRESS_AT + 4]
        found[ipaddress.IPv4Address(packed)] = name.decode()
    return found


def _ipv6_interface(wanted: ipaddress.IPv6Address) -> str | None:
    try:
        lines = _IPV6_TABLE.read_text().splitlines()
    except FileNotFoundError:
        # A kernel without IPv6 has no such table, and no such address.
        return None
    for line in lines:
        digits, *_, name = line.split()
        if int(digits, 16) == int(wanted):
            return name
    return None
