"""The maxima are those of skippy-facts 1.8 and of the contract."""

from __future__ import annotations

from skippyd.core.wire import limits


def test_the_limits_are_the_published_ones() -> None:
    assert limits.STATE_VERSION == 14
    assert limits.MESSAGE_PREFIX_BYTES == 72
    assert limits.LOGIT_BIAS_MAX == 256
    assert limits.SAMPLERS_MAX == 16
    assert limits.DRY_BREAKERS_MAX == 8
    assert limits.SAMPLING_STRING_MAX_BYTES == 64
    assert limits.PREDICTED_TOKENS_MAX == 262_144
    assert limits.SIDEBAND_MAX == 1_048_576
    assert limits.CHAT_METADATA_MAX_BYTES == 8 * 1024**2
    assert limits.STATE_IMPORT_MAX_BYTES == 512 * 1024**2
    assert limits.ACTIVATION_MAX_BYTES == 512 * 1024**2
    assert limits.AUTH_TOKEN_MAX_BYTES == 64
    assert limits.FAILURE_TEXT_MAX_BYTES == 512
    assert limits.VERIFY_WINDOW_DEPTH_MAX == 64
    assert limits.PENDING_RETURN_SINKS_MAX == 64
