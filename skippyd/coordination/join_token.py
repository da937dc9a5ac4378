"""The token of an invitation, and what both sides of a join say to each other."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import attrs

from skippyd.config.convert import structure
from skippyd.config.documents import parse_json
from skippyd.config.endpoints import parse_endpoint
from skippyd.coordination.identity import is_node_id
from skippyd.errors import ConfigError, UsageError


TOKEN_PREFIX = "skippy-join-1."  # noqa: S105 - the kind of token, not a secret
LONGEST_TOKEN = 2048


@attrs.frozen(kw_only=True)
class Invitation:
    """What a token says.

    Args:
        address: HOST:PORT of the inviting node.
        node_id: Its id.
        secret: Hex of the one-time secret.
        expires_unix_ms: When it ends by the inviting node's clock, for people.
    """

    address: str
    node_id: str
    secret: str = attrs.field(repr=False)
    expires_unix_ms: int

    @property
    def invite_id(self) -> str:
        """What names the secret without telling it."""
        return hashlib.sha256(bytes.fromhex(self.secret)).hexdigest()

    def token(self) -> str:
        """Write it on one line."""
        text = json.dumps(attrs.asdict(self), separators=(",", ":"))
        return TOKEN_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


@attrs.frozen(kw_only=True)
class JoinRequest:
    """What a joiner says.

    Args:
        invite_id: Which invitation.
        name: What people call the joiner.
        address: HOST:PORT of its control server.
        certificate_pem: Its certificate.
        proof: Hex of the HMAC over both certificates.
    """

    invite_id: str
    name: str
    address: str
    certificate_pem: str
    proof: str


@attrs.frozen(kw_only=True)
class JoinAnswer:
    """What the inviting node says about itself."""

    name: str
    certificate_pem: str


def parse_token(token: str) -> Invitation:
    """Read a token.

    Raises:
        UsageError: It is none, or was cut while copying.
    """
    text = token.strip()
    if len(text) > LONGEST_TOKEN or not text.startswith(TOKEN_PREFIX):
        raise _no_token()
    try:
        body = text.removeprefix(TOKEN_PREFIX).encode()
        document = base64.b64decode(body, altchars=b"-_", validate=True).decode()
        parsed = parse_json(document, source="token")
        invitation = structure(parsed, Invitation, source="token")
        parse_endpoint(invitation.address, port_zero_allowed=False)
    except (ValueError, ConfigError) as error:
        raise _no_token() from error
    if not is_node_id(invitation.node_id) or not is_node_id(invitation.secret):
        raise _no_token()
    return invitation


def join_proof(secret: bytes, inviter_der: bytes, joiner_der: bytes) -> str:
    """Prove knowledge of the secret and bind both certificates to it, as hex."""
    message = b"skippy-join-1"
    for certificate in (inviter_der, joiner_der):
        message += len(certificate).to_bytes(4, "little") + certificate
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def _no_token() -> UsageError:
    return UsageError(
        f"this is no invitation: a token begins with {TOKEN_PREFIX} and is one line; "
        "copy it whole, or make a new one with `skippyctl invite`"
    )
