"""Reasons of broken streams, in words."""

from __future__ import annotations

import ssl

import pytest
import trio

from skippyd.net.broken import broken_reason


def caused(cause: BaseException | None, text: str = "") -> trio.BrokenResourceError:
    error = trio.BrokenResourceError(text)
    error.__cause__ = cause
    return error


def ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "raw")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (caused(ssl_error("TLSV1_ALERT_UNKNOWN_CA")), "does not know this node's"),
        (caused(ssl_error("HTTP_REQUEST")), "does not speak TLS"),
        (caused(ssl_error("BAD_RECORD_TYPE")), "bad record type"),
        (caused(ssl.SSLCertVerificationError(1, "x")), "not the stored one"),
        (caused(ConnectionResetError(104, "reset by peer")), "reset by peer"),
        (caused(None, "said so"), "said so"),
        (caused(None), "the peer ended the connection"),
    ],
)
def test_a_broken_stream_says_why(error: BaseException, words: str) -> None:
    assert words in broken_reason(error)
