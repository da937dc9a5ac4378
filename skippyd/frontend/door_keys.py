"""API keys of the front door: read from a file, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import stat
from typing import TYPE_CHECKING

import attrs

from skippyd.config.endpoints import Endpoint
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

FILE_MAX_BYTES = 1 << 20
KEY_LEAST_CHARACTERS = 16
MAX_KEYS = 10_000
OTHERS_BITS = 0o007
BEARER = "bearer"
COMMENT = "#"


@attrs.frozen
class DoorKeys:
    """The keys that open the door, as digests only."""

    _digests: tuple[bytes, ...] = attrs.field(repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file with one key a line; empty lines and `#` lines do not count.

        Raises:
            ConfigError: It cannot be read, others may read it, or a key is too short.
        """
        try:
            mode = path.stat().st_mode
            with path.open("rb") as file:
                data = file.read(FILE_MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"API keys {path}: {error.strerror or error}; write one key a line"
            ) from error
        if stat.S_IMODE(mode) & OTHERS_BITS:
            raise ConfigError(
                f"API keys {path} can be read by everybody; say `chmod o= {path}`"
            )
        return cls(_digests_of(path, data))

    def admits(self, authorization: str | None) -> bool:
        """Say whether an `Authorization` header carries one of the keys.

        Every key is compared whatever the others say, so time tells nothing.
        """
        scheme, _, given = (authorization or "").partition(" ")
        digest = _digest(given.strip().encode())
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found and scheme.lower() == BEARER


def check_door_bind(host: str, keys: DoorKeys | None) -> None:
    """Refuse a door that everybody on the network could use.

    Raises:
        ConfigError: The address is not loopback and there are no keys.
    """
    if keys is None and not Endpoint(host, 0).is_loopback:
        raise ConfigError(
            f"[openai] bind: {host} is not loopback and there are no API keys: anybody "
            "who reaches it could use the models; name a file in [openai] "
            "api_keys_file, or bind to 127.0.0.1"
        )


def _digests_of(path: Path, data: bytes) -> tuple[bytes, ...]:
    if len(data) > FILE_MAX_BYTES:
        raise ConfigError(f"API keys {path}: longer than {FILE_MAX_BYTES} bytes")
    keys: list[bytes] = []
    for number, line in enumerate(data.splitlines(), 1):
        key = line.strip()
        if not key or key.startswith(COMMENT.encode()):
            continue
        is_plain = key.isascii() and not any(chr(c).isspace() for c in key)
        if len(key) < KEY_LEAST_CHARACTERS or not is_plain:
            raise ConfigError(
                f"API keys {path}, line {number}: a key has at least "
                f"{KEY_LEAST_CHARACTERS} ASCII characters and no spaces; `openssl rand "
                "-hex 32` makes one"
            )
        keys.append(key)
    if not keys or len(keys) > MAX_KEYS:
        raise ConfigError(
            f"API keys {path}: holds {len(keys)} keys; write 1 to {MAX_KEYS}"
        )
    return tuple(_digest(key) for key in keys)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
