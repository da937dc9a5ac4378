"""Identities: made once, kept, refused when broken; ids that come from the key alone."""

from __future__ import annotations

import hashlib
import stat
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from skippyd.coordination.identity import (
    IdentityNotKeptError,
    certificate_der,
    is_node_id,
    load_or_create,
    make_certificate,
    write_atomically,
)
from skippyd.errors import ConfigError, ExitCode


if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_start_makes_an_identity_and_later_ones_keep_it(
    tmp_path: Path,
) -> None:
    first = load_or_create(tmp_path)
    assert load_or_create(tmp_path) == first
    assert is_node_id(first.node_id)
    for path in (first.key_path, first.certificate_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "identity.key",
        "identity.pem",
    ]


def test_the_node_id_is_the_hash_of_the_public_key(tmp_path: Path) -> None:
    identity = load_or_create(tmp_path)
    certificate = x509.load_pem_x509_certificate(identity.certificate_pem.encode())
    key = certificate.public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert identity.node_id == hashlib.sha256(spki).hexdigest()
    assert certificate.subject.rfc4514_string() == f"CN={identity.node_id}"
    assert certificate.not_valid_before_utc.year == 2020
    assert certificate.not_valid_after_utc.year == 9999


def test_a_lost_certificate_is_made_again_from_the_key(tmp_path: Path) -> None:
    first = load_or_create(tmp_path)
    first.certificate_path.unlink()
    assert load_or_create(tmp_path).node_id == first.node_id


def test_a_lost_key_of_a_known_identity_is_not_replaced(tmp_path: Path) -> None:
    load_or_create(tmp_path).key_path.unlink()
    with pytest.raises(ConfigError, match="other nodes know this node by the lost key"):
        load_or_create(tmp_path)


def test_the_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    identity = load_or_create(tmp_path)
    other = make_certificate(Ed25519PrivateKey.generate())
    identity.certificate_path.write_text(other)
    with pytest.raises(ConfigError, match="is not the certificate of"):
        load_or_create(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("identity.key", "nonsense", "is no private key"),
        ("identity.pem", "nonsense", "no PEM certificate"),
        ("identity.pem", "x" * 20_000, "no PEM certificate"),
        ("identity.pem", "", "no PEM certificate"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    load_or_create(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_or_create(tmp_path)
    assert name in str(caught.value)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = generate_private_key(SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "identity.key").write_bytes(pem)
    with pytest.raises(ConfigError, match="not an Ed25519 key"):
        load_or_create(tmp_path)


def test_a_file_that_is_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "identity.key").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_or_create(tmp_path)


@pytest.mark.parametrize("text", ["", "ab", "AB" * 32, "zz" * 32, "ab" * 33])
def test_what_is_no_node_id(text: str) -> None:
    assert not is_node_id(text)


def test_the_bytes_of_a_certificate_do_not_depend_on_its_lines(tmp_path: Path) -> None:
    pem = load_or_create(tmp_path).certificate_pem
    assert certificate_der(pem.replace("\n", "\r\n")) == certificate_der(pem)


def test_an_identity_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    """The service manager tries again: a disk may have room later."""
    with pytest.raises(IdentityNotKeptError, match=r"identity\.key cannot be written"):
        load_or_create(tmp_path / "gone")
    assert IdentityNotKeptError.exit_code is ExitCode.TRY_AGAIN


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "inner").touch()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "blocked", b"new")
    assert path.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocked", "file"]
