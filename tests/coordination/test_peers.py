"""Trusted nodes on disk and in the configuration."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination import peers as peers_module
from skippyd.coordination.identity import load_or_create
from skippyd.coordination.peers import Peer, PeerBook, checked_peer
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from pathlib import Path


def peer_of(tmp_path: Path, name: str) -> Peer:
    folder = tmp_path / f"state-{name}"
    folder.mkdir()
    return checked_peer(
        address="192.0.2.1:9401",
        certificate_pem=load_or_create(folder).certificate_pem,
        name=name,
    )


def test_a_peer_is_there_after_a_restart(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    book.add(peer)
    assert PeerBook(tmp_path).all() == (peer,)
    assert PeerBook(tmp_path).get(peer.node_id) == peer
    files = sorted((tmp_path / "peers").iterdir())
    assert [path.name for path in files] == [
        f"{peer.node_id}.json",
        f"{peer.node_id}.pem",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "peers").stat().st_mode) == 0o700


def test_a_peer_that_moved_is_stored_anew(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    book.add(peer)
    moved = attrs.evolve(peer, address="192.0.2.2:9401")
    book.add(moved)
    assert PeerBook(tmp_path).all() == (moved,)


def test_a_forgotten_peer_is_gone_for_good(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    book.add(peer)
    assert book.remove(peer.node_id)
    assert not book.remove(peer.node_id)
    assert book.all() == PeerBook(tmp_path).all() == ()
    assert list((tmp_path / "peers").iterdir()) == []


def test_the_configuration_wins_and_is_not_stored(tmp_path: Path) -> None:
    peer, other = peer_of(tmp_path, "b"), peer_of(tmp_path, "c")
    PeerBook(tmp_path).add(peer)
    configured = attrs.evolve(peer, address="192.0.2.9:1")
    book = PeerBook(tmp_path, [configured, other])
    assert book.get(peer.node_id) == configured
    assert {known.name for known in book.all()} == {"b", "c"}
    book.set_configured([])
    assert book.all() == (peer,)


def test_every_change_is_told(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    seen = [book.changed()]
    book.add(peer)
    seen.append(book.changed())
    book.set_configured([peer])
    seen.append(book.changed())
    book.remove(peer.node_id)
    assert all(event.is_set() for event in seen)
    assert not book.changed().is_set()


def test_a_certificate_without_its_document_is_no_peer_yet(tmp_path: Path) -> None:
    """A crash between the two writes leaves this."""
    peer = peer_of(tmp_path, "b")
    PeerBook(tmp_path).add(peer)
    (tmp_path / "peers" / f"{peer.node_id}.json").unlink()
    assert PeerBook(tmp_path).all() == ()


def test_the_certificate_of_another_node_is_refused(tmp_path: Path) -> None:
    peer, other = peer_of(tmp_path, "b"), peer_of(tmp_path, "c")
    with pytest.raises(ConfigError, match=f"not to {other.node_id}"):
        checked_peer(
            node_id=other.node_id,
            address=peer.address,
            certificate_pem=peer.certificate_pem,
        )


@pytest.mark.parametrize(
    ("ending", "text", "words"),
    [
        ("json", "{", "line 1"),
        ("json", "{}", "required and missing"),
        ("json", None, "is no skippy.peer/1"),
        ("pem", "nonsense", "no PEM certificate"),
        ("pem", "other", "the certificate belongs to node"),
    ],
)
def test_a_broken_file_is_named_with_what_to_do(
    tmp_path: Path, ending: str, text: str | None, words: str
) -> None:
    peer, other = peer_of(tmp_path, "b"), peer_of(tmp_path, "c")
    PeerBook(tmp_path).add(peer)
    path = tmp_path / "peers" / f"{peer.node_id}.{ending}"
    if text is None:
        text = path.read_text().replace("skippy.peer/1", "skippy.peer/2")
    path.write_text(other.certificate_pem if text == "other" else text)
    with pytest.raises(ConfigError, match=words) as caught:
        PeerBook(tmp_path)
    assert peer.node_id in str(caught.value)


def test_a_file_that_is_named_for_nobody_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "bob.json").write_text("{}")
    with pytest.raises(ConfigError, match="no node id"):
        PeerBook(tmp_path)


def test_peers_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "MOST_PEERS", 1)
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    book.add(peer)
    book.add(peer)
    with pytest.raises(ConfigError, match="1 peers are stored already"):
        book.add(peer_of(tmp_path, "c"))


def test_a_disk_that_refuses_changes_nothing(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    (tmp_path / "peers").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot store peer"):
        book.add(peer)
    assert book.all() == ()


def test_a_peer_that_cannot_be_forgotten_stays_trusted(tmp_path: Path) -> None:
    book, peer = PeerBook(tmp_path), peer_of(tmp_path, "b")
    book.add(peer)
    path = tmp_path / "peers" / f"{peer.node_id}.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot forget peer"):
        book.remove(peer.node_id)
    assert book.all() == (peer,)
