"""Handshakes of real TLS on loopback: exactly the stored certificates, nothing else."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.identity import Identity, load_or_create
from skippyd.errors import ConfigError
from skippyd.net.broken import broken_reason
from skippyd.net.tls import (
    TlsRefusedError,
    client_context,
    parse_certificate,
    peer_certificate_der,
    server_context,
    shake_hands,
    spoken_protocol,
    unverified_client_context,
)


if TYPE_CHECKING:
    from pathlib import Path

ALPN = ["skippy-control/1"]


@attrs.define
class Outcome:
    """What one side of a handshake saw."""

    key: str | None = None
    protocol: str | None = None
    error: str = ""


def made(folder: Path, name: str) -> Identity:
    (folder / name).mkdir()
    return load_or_create(folder / name)


async def met(
    client: ssl.SSLContext, server: ssl.SSLContext
) -> tuple[Outcome, Outcome]:
    """Let two contexts meet; return what the client and the server saw."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    outcomes = (Outcome(), Outcome())

    async def shake(stream: trio.SSLStream[trio.SocketStream], seen: Outcome) -> None:
        try:
            seen.key = await shake_hands(stream)
            seen.protocol = spoken_protocol(stream)
            # In TLS 1.3 a client learns that it was refused with the first byte.
            await stream.send_all(b"!")
            await stream.receive_some(1)
        except TlsRefusedError as error:
            seen.error = str(error)
        except trio.BrokenResourceError as error:
            seen.error = broken_reason(error)
        finally:
            await trio.aclose_forcefully(stream)

    async with listener, trio.open_nursery() as nursery:
        address = listener.socket.getsockname()
        outgoing = await trio.open_tcp_stream(*address[:2])
        incoming = await listener.accept()
        nursery.start_soon(shake, trio.SSLStream(outgoing, client), outcomes[0])
        nursery.start_soon(
            shake, trio.SSLStream(incoming, server, server_side=True), outcomes[1]
        )
    return outcomes


def serving(own: Identity, *trusted: Identity, **options: bool) -> ssl.SSLContext:
    return server_context(
        own.own_certificate,
        trusted_pems=[identity.certificate_pem for identity in trusted],
        alpn=ALPN,
        **options,
    )


def dialling(own: Identity, trusted: Identity) -> ssl.SSLContext:
    return client_context(
        own.own_certificate, trusted_pem=trusted.certificate_pem, alpn=ALPN
    )


async def test_two_ends_that_know_each_other_meet(tmp_path: Path) -> None:
    a, b, c = (made(tmp_path, name) for name in "abc")
    client, server = await met(dialling(a, b), serving(b, a, c))
    assert (client.key, client.protocol, client.error) == (b.node_id, ALPN[0], "")
    assert (server.key, server.protocol, server.error) == (a.node_id, ALPN[0], "")


async def test_a_client_that_is_not_stored_is_refused(tmp_path: Path) -> None:
    a, b, c = (made(tmp_path, name) for name in "abc")
    for is_optional in (False, True):
        _, server = await met(
            dialling(a, b), serving(b, c, may_be_anonymous=is_optional)
        )
        assert server.key is None
        assert server.error == "the peer shows a certificate that is not the stored one"


async def test_a_server_that_is_not_the_stored_one_is_refused(tmp_path: Path) -> None:
    a, b, c = (made(tmp_path, name) for name in "abc")
    client, server = await met(dialling(a, c), serving(b, a))
    assert client.error == "the peer shows a certificate that is not the stored one"
    assert server.error


async def test_no_certificate_is_taken_only_where_it_may_be(tmp_path: Path) -> None:
    b = made(tmp_path, "b")
    anonymous = unverified_client_context(alpn=ALPN)
    client, server = await met(anonymous, serving(b, may_be_anonymous=True))
    assert (client.key, client.error) == (b.node_id, "")
    assert (server.key, server.error) == (None, "")
    _, refusing = await met(anonymous, serving(b))
    assert refusing.error


async def test_an_older_tls_is_not_spoken(tmp_path: Path) -> None:
    a, b = made(tmp_path, "a"), made(tmp_path, "b")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    _, server = await met(old, serving(b, a, may_be_anonymous=True))
    assert "TLS 1.3" in server.error or "protocol" in server.error


async def test_another_protocol_is_not_agreed_on(tmp_path: Path) -> None:
    b = made(tmp_path, "b")
    other = unverified_client_context(alpn=["h2"])
    client, server = await met(other, serving(b, may_be_anonymous=True))
    assert client.protocol is server.protocol is None


async def test_the_certificate_that_was_shown_can_be_read(tmp_path: Path) -> None:
    """Also by a client that verifies nothing."""
    b = made(tmp_path, "b")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    context = serving(b, may_be_anonymous=True)

    async def answer(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, context, server_side=True)
        assert await shake_hands(tls) is None
        assert peer_certificate_der(tls) == b""
        await tls.receive_some(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        stream = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        tls = trio.SSLStream(stream, unverified_client_context(alpn=ALPN))
        await shake_hands(tls)
        shown = ssl.DER_cert_to_PEM_cert(peer_certificate_der(tls))
        assert shown.split() == b.certificate_pem.split()
        await trio.aclose_forcefully(tls)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b""])
async def test_what_is_no_tls_is_refused_in_words(tmp_path: Path, said: bytes) -> None:
    b = made(tmp_path, "b")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        await stream.send_all(said)
        await stream.send_eof()
        incoming = await listener.accept()
        tls = trio.SSLStream(incoming, serving(b), server_side=True)
        async with stream:
            with pytest.raises(TlsRefusedError, match=r"peer|record|version"):
                await shake_hands(tls)
        await trio.aclose_forcefully(tls)


def test_one_certificate_is_read_not_none_and_not_two(tmp_path: Path) -> None:
    pem = made(tmp_path, "a").certificate_pem
    assert parse_certificate(pem, source="x").subject
    with pytest.raises(ConfigError, match="x: holds 2 certificates"):
        parse_certificate(pem + pem, source="x")
    with pytest.raises(ConfigError, match="x: holds no PEM"):
        parse_certificate("", source="x")
    with pytest.raises(ConfigError, match="x: is too long"):
        parse_certificate(pem * 100, source="x")
