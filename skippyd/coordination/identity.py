"""Who this node is: an Ed25519 key, its certificate, and the node id they make.

The node id is the hash of the public key and nothing else, so a certificate may be made
anew from the key at any time.  Certificates never expire: what is trusted is listed,
and a node with a wrong clock must still be able to say so.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from skippyd.errors import ConfigError, ExitCode, SkippyError
from skippyd.ids import NodeId
from skippyd.net.tls import (
    OwnCertificate,
    certificate_key_sha256,
    parse_certificate,
    public_key_sha256,
)


KEY_NAME = "identity.key"
CERTIFICATE_NAME = "identity.pem"
NODE_ID_DIGITS = 64

_LARGEST_FILE_BYTES = 16 * 1024
_VALID_FROM = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_VALID_UNTIL = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)


class IdentityNotKeptError(SkippyError):
    """The disk does not take the identity; it may later, without anybody's doing."""

    exit_code = ExitCode.TRY_AGAIN


@attrs.frozen(kw_only=True)
class Identity:
    """This node's key pair on disk.

    Args:
        node_id: SHA-256 of the public key's DER SubjectPublicKeyInfo, lower hex.
        certificate_pem: What peers store.
        key_path: The private key.
        certificate_path: The certificate.
    """

    node_id: NodeId
    certificate_pem: str
    key_path: Path
    certificate_path: Path

    @property
    def own_certificate(self) -> OwnCertificate:
        """What TLS shows to peers."""
        return OwnCertificate(
            certificate_path=self.certificate_path, key_path=self.key_path
        )


def load_or_create(state_dir: Path) -> Identity:
    """Read this node's identity; make it on the first start.

    Args:
        state_dir: The state directory, locked by this daemon.

    Raises:
        ConfigError: A file is broken, or the key of a known identity is gone.
        IdentityNotKeptError: The disk does not take a new identity.
    """
    key_path, certificate_path = state_dir / KEY_NAME, state_dir / CERTIFICATE_NAME
    key = _key(key_path, certificate_path)
    if not certificate_path.exists():
        _keep(certificate_path, make_certificate(key).encode())
    pem = _read(certificate_path).decode(errors="replace")
    certificate = parse_certificate(pem, source=str(certificate_path))
    node_id = node_id_of(certificate)
    if certificate.public_key() != key.public_key():
        raise ConfigError(
            f"{certificate_path}: is not the certificate of {key_path}; delete the "
            "certificate and it is made again from the key"
        )
    return Identity(
        node_id=node_id,
        certificate_pem=pem,
        key_path=key_path,
        certificate_path=certificate_path,
    )


def make_certificate(key: Ed25519PrivateKey) -> str:
    """Make the self-signed certificate of a key, as PEM."""
    # Peers hold many such certificates: OpenSSL finds the right one by its subject.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, public_key_sha256(key.public_key()))]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    return certificate.public_bytes(Encoding.PEM).decode()


def node_id_of(certificate: x509.Certificate) -> NodeId:
    """Return the id of the node that a certificate belongs to.

    Raises:
        ConfigError: Its key cannot be read.
    """
    return NodeId(certificate_key_sha256(certificate))


def certificate_der(pem: str) -> bytes:
    """Return the certificate as its bytes, which have one form only.

    Raises:
        ConfigError: It is none.
    """
    certificate = parse_certificate(pem, source="certificate")
    return certificate.public_bytes(Encoding.DER)


def is_node_id(text: str) -> bool:
    """Say whether a text has the form of a node id: 64 lower-case hex digits."""
    return len(text) == NODE_ID_DIGITS and set(text) <= set("0123456789abcdef")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a private file so that a crash leaves the old one or the new one, whole."""
    # mkstemp makes it 0600 from the start.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _key(key_path: Path, certificate_path: Path) -> Ed25519PrivateKey:
    if not key_path.exists():
        if certificate_path.exists():
            raise ConfigError(
                f"{key_path}: is gone, but {certificate_path} is there: other nodes "
                "know this node by the lost key; restore the key, or delete the "
                "certificate too and join again as a new node"
            )
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _keep(key_path, pem)
    try:
        loaded = load_pem_private_key(_read(key_path), password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{key_path}: is no private key: {error}; restore it from a backup"
        ) from error
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ConfigError(f"{key_path}: is not an Ed25519 key; restore the right one")
    return loaded


def _keep(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise IdentityNotKeptError(
            f"{path} cannot be written: {error.strerror}; free space, check the disk, "
            "then start skippyd again"
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
