from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.endpoints import Endpoint, parse_endpoint
from skippyd.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:19000", "127.0.0.1", 19000),
        ("tcp://10.0.0.7:1", "10.0.0.7", 1),
        ("localhost:0", "localhost", 0),
        ("node-3.lan:65535", "node-3.lan", 65535),
        ("[::1]:19000", "::1", 19000),
        ("tcp://[fe80:0:0::1]:9", "fe80::1", 9),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == Endpoint(host, port)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not an endpoint"),
        ("19000", "is not an endpoint"),
        (":19000", "is not an endpoint"),
        ("host:", "has port ''"),
        ("host:65536", "has port '65536'"),
        ("host:-1", "has port '-1'"),
        ("host:٣", "has port"),
        ("host:1e3", "has port '1e3'"),
        ("::1:19000", "in brackets"),
        ("[::1:19000", "in brackets"),
        ("[nonsense]:1", "no IPv6 address in its brackets"),
        ("http://host:80", "in brackets"),
        ("host name:80", "no valid host name"),
        ("-host:80", "no valid host name"),
        ("h" * 254 + ":80", "no valid host name"),
    ],
)
def test_anything_else_is_refused_with_the_part_that_is_wrong(
    text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_endpoint(text)


def test_port_zero_is_for_binding_only() -> None:
    assert parse_endpoint("127.0.0.1:0").port == 0
    with pytest.raises(ConfigError, match="a peer needs a real port"):
        parse_endpoint("127.0.0.1:0", port_zero_allowed=False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("node.lan", False),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(
    host: str, *, expected: bool
) -> None:
    assert Endpoint(host, 1).is_loopback is expected


@given(
    st.one_of(
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
        st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True),
    ),
    st.integers(0, 65535),
)
def test_what_is_printed_reads_back(host: str, port: int) -> None:
    endpoint = Endpoint(host, port)
    assert parse_endpoint(str(endpoint)) == endpoint
    assert parse_endpoint(f"tcp://{endpoint}") == endpoint


@given(st.text(max_size=40))
def test_any_text_is_an_endpoint_or_a_config_error(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except ConfigError:
        return
    assert 0 <= endpoint.port <= 65535
    assert endpoint.host
