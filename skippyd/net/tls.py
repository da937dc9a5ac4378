"""TLS 1.3 between two ends that hold each other's certificate, and nobody else's.

There is no authority: a context trusts exactly the certificates it is given.  A name is
never compared, the key is: see `public_key_sha256`.  Sessions are not resumed, for a
resumed one is not verified again and would outlive the trust that it was made with.
"""

from __future__ import annotations

import hashlib
import ssl
from typing import TYPE_CHECKING

import attrs
import trio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from skippyd.errors import ConfigError, RemoteProtocolError
from skippyd.net.broken import broken_reason


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import (
        CertificatePublicKeyTypes,
    )

LONGEST_CERTIFICATE_BYTES = 16 * 1024


class TlsRefusedError(RemoteProtocolError):
    """A handshake did not come about; the message says whose fault it was, and why."""


@attrs.frozen(kw_only=True)
class OwnCertificate:
    """Where this end's certificate and its private key lie, both PEM.

    Args:
        certificate_path: The certificate.
        key_path: Its key, not encrypted.
    """

    certificate_path: Path
    key_path: Path


def server_context(
    own: OwnCertificate,
    *,
    trusted_pems: Iterable[str],
    alpn: Sequence[str],
    may_be_anonymous: bool = False,
) -> ssl.SSLContext:
    """Build the context of the accepting end.

    Args:
        own: What it shows.
        trusted_pems: Certificates of the clients it knows.
        alpn: Protocols it speaks.
        may_be_anonymous: Whether a client may show no certificate at all; one that
            shows a certificate must show a trusted one in any case.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, own, trusted_pems, alpn)
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_OPTIONAL if may_be_anonymous else ssl.CERT_REQUIRED
    return context


def client_context(
    own: OwnCertificate, *, trusted_pem: str, alpn: Sequence[str]
) -> ssl.SSLContext:
    """Build the context of a dialling end that knows whom it wants to meet."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, own, [trusted_pem], alpn)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def unverified_client_context(*, alpn: Sequence[str]) -> ssl.SSLContext:
    """Build the context of a dialling end that shows nothing and trusts nobody yet.

    The caller compares the key of the certificate it sees before it says a word.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, None, [], alpn)
    context.verify_mode = ssl.CERT_NONE
    return context


def parse_certificate(pem: str, *, source: str) -> x509.Certificate:
    """Read one PEM certificate.

    Raises:
        ConfigError: It is none, or is too large to be one.
    """
    if len(pem) > LONGEST_CERTIFICATE_BYTES:
        raise ConfigError(f"{source}: is too long for one certificate")
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise ConfigError(f"{source}: holds no PEM certificate: {error}") from error
    if len(found) != 1:
        raise ConfigError(f"{source}: holds {len(found)} certificates, expected one")
    return found[0]


def certificate_key_sha256(certificate: x509.Certificate) -> str:
    """Return the hash of the key that a certificate is about.

    Raises:
        ConfigError: The key is of a kind that cannot be read.
    """
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"the key in the certificate cannot be read: {error}"
        ) from error
    return public_key_sha256(key)


def public_key_sha256(key: CertificatePublicKeyTypes) -> str:
    """Return the SHA-256 of a key's DER SubjectPublicKeyInfo, in lower hex."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


async def shake_hands(stream: trio.SSLStream[trio.SocketStream]) -> str | None:
    """Make the handshake; return the hash of the peer's key, None when it showed none.

    Bound it with a cancel scope: a peer may say nothing.

    Raises:
        TlsRefusedError: The ends do not trust each other, or do not speak TLS 1.3.
    """
    try:
        await stream.do_handshake()
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise TlsRefusedError(broken_reason(error)) from error
    der = peer_certificate_der(stream)
    if not der:
        return None
    try:
        return certificate_key_sha256(x509.load_der_x509_certificate(der))
    except (ValueError, ConfigError) as error:
        message = f"the peer's certificate cannot be read: {error}"
        raise TlsRefusedError(message) from error


def peer_certificate_der(stream: trio.SSLStream[trio.SocketStream]) -> bytes:
    """Return the certificate that the peer has shown; empty when it showed none."""
    # The binary form is given out though nothing was verified.
    return stream.getpeercert(binary_form=True) or b""


def spoken_protocol(stream: trio.SSLStream[trio.SocketStream]) -> str | None:
    """Return the protocol that both ends agreed on (ALPN), after the handshake."""
    protocol = stream.selected_alpn_protocol()
    return None if protocol is None else str(protocol)


def _context(
    protocol: ssl._SSLMethod,
    own: OwnCertificate | None,
    trusted_pems: Iterable[str],
    alpn: Sequence[str],
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(list(alpn))
    if own is not None:
        context.load_cert_chain(own.certificate_path, own.key_path)
    if trusted := "".join(trusted_pems):
        context.load_verify_locations(cadata=trusted)
    return context
