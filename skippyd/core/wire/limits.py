"""Every maximum and fixed number of the wire, each with its reason.

A reader compares with these before it allocates or waits; a peer can therefore make
us hold at most one activation payload and its sidebands at a time.
"""

from __future__ import annotations

from skippyd.units import KIB, MIB


STATE_VERSION = 14
"""First word of the state header: 27 reply statistics; every other value is refused."""

WIRE_VALUE_BYTES = 4
"""Width of token ids, positions and f32 activation values."""

MESSAGE_PREFIX_BYTES = 72
"""Fixed part of every message; nothing but a message boundary precedes it."""

LOGIT_BIAS_MAX = 256
"""Entries of one sampling block; more than any client documents."""

SAMPLERS_MAX = 16
"""Samplers in a chain; nine exist, the rest is room."""

DRY_BREAKERS_MAX = 8
"""Sequence breakers of the DRY sampler; four are the default."""

SAMPLING_STRING_MAX_BYTES = 64
"""One sampler name or sequence breaker."""

PREDICTED_TOKENS_MAX = 256 * KIB
"""Tokens in one reply, and in one draft: 1 MiB of ids."""

SIDEBAND_MAX = 1024 * KIB
"""Token ids, and as many positions, of one message: above any context offered."""

CHAT_METADATA_MAX_BYTES = 8 * MIB
"""Opaque JSON of the chat template step; a grammar may be large."""

STATE_IMPORT_MAX_BYTES = 512 * MIB
"""Raw bytes of a StateImport."""

ACTIVATION_MAX_BYTES = 512 * MIB
"""One activation payload, on the wire and as rows for the runtime."""

AUTH_TOKEN_MAX_BYTES = 64
"""Token of the connection preamble; ours are 32 bytes."""

RUN_KEY_BYTES = 32
"""Key of one run and term, from which connection tokens are derived."""

FAILURE_TEXT_MAX_BYTES = 512
"""Text of a Failure reply: one clear line, not a log."""

VERIFY_WINDOW_DEPTH_MAX = 64
"""Verify windows in flight of one session."""

PENDING_RETURN_SINKS_MAX = 64
"""Prediction return connections that wait at a final stage for their session."""
