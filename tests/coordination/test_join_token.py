"""Tokens come back as they were, and nothing else passes for one."""

from __future__ import annotations

import base64
import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.coordination.join_token import (
    TOKEN_PREFIX,
    Invitation,
    join_proof,
    parse_token,
)
from skippyd.errors import ExitCode, UsageError


HEX = st.binary(min_size=32, max_size=32).map(bytes.hex)
INVITATIONS = st.builds(
    Invitation,
    address=st.sampled_from(["127.0.0.1:9401", "[::1]:1", "node-a.example:65535"]),
    node_id=HEX,
    secret=HEX,
    expires_unix_ms=st.integers(0, 2**53),
)


@pytest.mark.slow
@given(INVITATIONS, st.sampled_from(["", " ", "\n", "\t \n"]))
def test_a_token_comes_back_as_it_was(invitation: Invitation, around: str) -> None:
    assert parse_token(around + invitation.token() + around) == invitation


def token_of(text: str) -> str:
    return TOKEN_PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


GOOD = Invitation(
    address="127.0.0.1:9401", node_id="ab" * 32, secret="cd" * 32, expires_unix_ms=7
)


GOOD_TEXT = json.dumps(attrs.asdict(GOOD))


def test_the_good_token_is_one() -> None:
    assert parse_token(token_of(GOOD_TEXT)) == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        GOOD.token()[:-5],
        GOOD.token().removeprefix("skippy-"),
        GOOD.token().replace(".", ".!"),
        GOOD.token()[:40] + "\n" + GOOD.token()[40:],
        TOKEN_PREFIX + "A" * 5000,
        TOKEN_PREFIX + "ä",
        token_of("{}"),
        token_of("[" * 100),
        token_of("\udcff".encode(errors="surrogateescape").decode("latin-1")),
        token_of('{"address":"a:1","node_id":"x","secret":"y","expires_unix_ms":1}'),
        token_of(GOOD_TEXT.replace(":9401", ":0")),
        token_of(GOOD_TEXT.replace("{", '{"x":1,')),
        token_of(GOOD_TEXT.replace("7", '"7"')),
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no invitation") as caught:
        parse_token(text)
    assert caught.value.exit_code is ExitCode.USAGE


def test_the_proof_depends_on_secret_certificates_and_their_order() -> None:
    proofs = {
        join_proof(b"s", b"a", b"b"),
        join_proof(b"t", b"a", b"b"),
        join_proof(b"s", b"b", b"a"),
        join_proof(b"s", b"ab", b""),
        join_proof(b"s", b"", b"ab"),
    }
    assert len(proofs) == 5
