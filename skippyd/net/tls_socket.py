"""A TLS connection on a blocking socket, for lanes: waits and deadlines stay the socket's.

TLS runs in memory here and only its records touch the socket. So reads and writes are
bounded by `SO_RCVTIMEO` and `SO_SNDTIMEO` as those of a plain lane (a wrapped
socket of the standard library would try again for ever), whoever waits polls the
descriptor, and all that is decrypted is handed out at once: nothing is left pending
behind a descriptor that is not readable.

The lane's thread does the reading and writing. A prediction return is the exception,
written by lanes while its own thread reads: the TLS state is locked, but never during a
wait for the peer.
"""

from __future__ import annotations

import contextlib
import errno
import ssl
import threading
from typing import TYPE_CHECKING

from cryptography import x509

from skippyd.errors import ConfigError
from skippyd.net.broken import tls_reason
from skippyd.net.tcp import NO_TLS_ALERT
from skippyd.net.tls import TlsRefusedError, certificate_key_sha256


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

RECEIVE_BYTES = 65_536
SLICE_BYTES = 262_144
"""Encrypted and sent at a time: bounds memory, and what a send's deadline is for."""


class TlsSocket:
    """One end of a connection; `shake_hands` comes first.

    Args:
        plain: The connected, prepared socket; from here on this one's.
        context: What it shows and trusts.
        is_server: Whether it accepted.
    """

    def __init__(
        self, plain: socket.socket, context: ssl.SSLContext, *, is_server: bool
    ) -> None:
        self.plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server
        )
        self._state_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._is_cut = False

    def fileno(self) -> int:
        """Descriptor to poll."""
        return self.plain.fileno()

    def shake_hands(self, wait_readable: Callable[[], None]) -> str:
        """Make the handshake; return the hash of the peer's key.

        Args:
            wait_readable: Returns when the socket is readable; raises to give up.

        Raises:
            TlsRefusedError: The ends do not trust each other, or do not speak TLS 1.3.
            OSError: The connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._write_records()
            except ssl.SSLError as error:
                self._say_why()
                raise TlsRefusedError(tls_reason(error)) from error
            else:
                self._write_records()
                return self._peer_key()
            wait_readable()
            data = self._read_socket()
            if not data:
                raise TlsRefusedError(
                    "it closed the connection during the TLS handshake; it may not "
                    "speak TLS"
                )
            self._incoming.write(data)

    @property
    def protocol(self) -> str | None:
        """What both ends agreed to speak (ALPN), after the handshake."""
        return self._tls.selected_alpn_protocol()

    def take_early(self) -> bytes:
        """What arrived together with the end of the handshake; once, after it."""
        return self._decrypt() or b""

    def receive(self) -> bytes | None:
        """Receive and decrypt what is there, at most a few records.

        Returns:
            The bytes; empty at the end of the stream, None when a record is not whole
            yet.

        Raises:
            TimeoutError: Nothing came for as long as the socket allows.
            OSError: The connection broke, or the peer refused us.
        """
        data = self._read_socket()
        if not data:
            return b""
        with self._state_lock:
            self._incoming.write(data)
            return self._decrypt()

    def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send all buffers.

        Raises:
            TimeoutError: The peer took nothing for as long as the socket allows.
            OSError: The connection broke, now or before.
        """
        joined = memoryview(b"".join(buffers))
        with self._write_lock:
            for start in range(0, len(joined), SLICE_BYTES):
                with self._state_lock:
                    self._encrypt(joined[start : start + SLICE_BYTES])
                self._write_records()

    def close(self) -> None:
        """Close the connection."""
        self.plain.close()

    def _say_why(self) -> None:
        # OpenSSL has no words for what is no TLS at all.
        last_words = self._outgoing.read() or NO_TLS_ALERT
        with contextlib.suppress(OSError):  # the peer may be gone already
            self.plain.send(last_words)

    def _encrypt(self, data: memoryview) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise ConnectionAbortedError(
                errno.ECONNABORTED, f"TLS: {tls_reason(error)}"
            ) from error

    def _decrypt(self) -> bytes | None:
        """All that can be decrypted; empty at the end, None when there is nothing."""
        parts: list[bytes] = []
        while True:
            try:
                part = self._tls.read(RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(parts) or None
            except ssl.SSLZeroReturnError:
                part = b""
            except ssl.SSLError as error:
                raise ConnectionAbortedError(
                    errno.ECONNABORTED, f"TLS: {tls_reason(error)}"
                ) from error
            if not part:
                return b"".join(parts)
            parts.append(part)

    def _write_records(self) -> None:
        if self._is_cut:
            # After half a record nothing that follows could be read.
            raise BrokenPipeError(errno.EPIPE, "an earlier write was cut short")
        records = memoryview(self._outgoing.read())
        while records:
            try:
                sent = self.plain.send(records)
            except BlockingIOError:
                self._is_cut = True
                raise TimeoutError("the peer stopped reading") from None
            except OSError:
                self._is_cut = True
                raise
            records = records[sent:]

    def _read_socket(self) -> bytes:
        try:
            return self.plain.recv(RECEIVE_BYTES)
        except BlockingIOError:
            raise TimeoutError("the peer sent nothing more") from None

    def _peer_key(self) -> str:
        der = self._tls.getpeercert(binary_form=True)
        if not der:
            raise TlsRefusedError("the peer shows no certificate")
        try:
            return certificate_key_sha256(x509.load_der_x509_certificate(der))
        except (ValueError, ConfigError) as error:
            message = f"the peer's certificate cannot be read: {error}"
            raise TlsRefusedError(message) from error
