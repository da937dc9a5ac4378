"""Why one call into the engine failed, as types; each carries its wire code."""

from __future__ import annotations

from skippyd.errors import FailureCode, SkippyError


class EngineError(SkippyError):
    """llama.cpp failed in a way nobody foresaw; the context may be unusable."""

    code = FailureCode.INTERNAL


class KvFullError(EngineError):
    """No free KV cells for the batch; the cache is as it was before."""

    code = FailureCode.KV_FULL


class BadBatchError(EngineError):
    """The batch breaks a rule: position, sequence, token id or size."""

    code = FailureCode.BAD_BATCH


class AbortedError(EngineError):
    """The abort flag was raised while the batch ran."""

    code = FailureCode.CANCELLED


class SamplingError(EngineError):
    """The sampler chain cannot be built, or refused a token."""

    code = FailureCode.SAMPLING
