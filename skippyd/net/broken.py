"""Why a stream broke, in words for the one who lost it."""

from __future__ import annotations

import ssl


_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not know this node's certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer asks for a certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer does not speak TLS 1.3",
    "UNSUPPORTED_PROTOCOL": "the peer does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "HTTP_REQUEST": "the peer does not speak TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the peer was cut off",
}


def broken_reason(error: BaseException) -> str:
    """Say why a stream broke.

    Args:
        error: What trio raised; its cause knows more.
    """
    match error.__cause__:
        case ssl.SSLError() as cause:
            return tls_reason(cause)
        case None:
            return str(error) or "the peer ended the connection"
        case cause:
            return str(cause)


def tls_reason(error: ssl.SSLError) -> str:
    """Say what went wrong in TLS itself."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the peer shows a certificate that is not the stored one"
    if not error.reason:  # an error of the system below it
        return str(error)
    return _ALERTS.get(error.reason, error.reason.lower().replace("_", " "))
