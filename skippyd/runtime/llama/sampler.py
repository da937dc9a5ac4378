"""llama.cpp's sampler chain, built from a wire sampling block, seeded draw by draw.

Theory of operation. The chain has to have accepted exactly the tokens before the one
it draws. `draw` is told all of them and catches up; after a rewind it starts anew.
Random samplers are replaced before each draw by ones whose seed depends on the
position only, so a resumed generation is the same (contract, "Wire").
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import attrs

from skippyd.core.generation.draw import DrawSampler, draw_seed
from skippyd.runtime.failures import SamplingError
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.native import ERROR_BYTES, THREW, error_text, native


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.runtime.llama.context import StageContext

CHOICE = 0  # one answer a request until several are served
MIN_KEEP = 1
NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "typical_p",
    "top_nsigma",
    "dynatemp_range",
    "dynatemp_exponent",
    "dry_multiplier",
    "dry_base",
    "xtc_probability",
    "xtc_threshold",
)
"""Fields of the block that have to be finite."""


@attrs.define(kw_only=True)
class _Link:
    """One sampler of the chain: how to make it, and who owns randomness."""

    make: Callable[[int], Any]
    draws: DrawSampler | None = None


class SamplerChain:
    """One sequence's sampler chain on the final stage.

    Args:
        block: The request's sampling block; None or disabled means greedy.
        context: The final stage's context.

    Raises:
        SamplingError: The block names something this build does not serve.
    """

    def __init__(self, block: SamplingBlock | None, context: StageContext) -> None:
        self._context = context
        self._seed = block.seed if block is not None else 0
        self._links = _links(block, context)
        self._error = ctypes.create_string_buffer(ERROR_BYTES)
        self._sample_address = address_of(llama()._lib.llama_sampler_sample)  # noqa: SLF001 - its address is wanted
        self._accept_address = address_of(llama()._lib.llama_sampler_accept)  # noqa: SLF001 - as above
        self._accepted: list[int] = []
        self._must_restart = False
        self._first_random = next(
            (i for i, link in enumerate(self._links) if link.draws is not None), None
        )
        self._chain: Any = self._build()

    def close(self) -> None:
        """Free the chain; harmless when repeated."""
        if self._chain is not None:
            llama().llama_sampler_free(self._chain)
            self._chain = None

    def rewind(self) -> None:
        """The sequence was cut back: what was accepted no longer holds."""
        self._must_restart = True

    def draw(self, row: int, tokens: Sequence[int]) -> int:
        """Draw the token that follows `tokens` from one row's logits.

        Args:
            row: Index of the flagged row in the last batch.
            tokens: Every token of the sequence so far, from position 0.

        Raises:
            SamplingError: The chain threw, or chose nothing.
        """
        in_step = len(self._accepted) == len(tokens) and self._accepted[-1:] == [
            *tokens[-1:]
        ]
        if self._must_restart or not in_step:
            self._catch_up(tokens)
        self.reseed(len(tokens))
        token = self._sample(row)
        if token < 0:
            reason = error_text(self._error) if token == THREW else "no candidate"
            raise SamplingError(f"the sampler chain failed: {reason}")
        self._accepted.append(token)
        return token

    @property
    def address(self) -> int:
        """Of llama.cpp's chain, for native code that draws with it."""
        return int(ctypes.cast(self._chain, ctypes.c_void_p).value or 0)

    def due(self, length: int) -> int | None:
        """The last of `length` tokens, if the chain is in step with them but for it.

        Native code may draw after that token, once `reseed` was called, and `drew` has
        to be told. None when the chain has to catch up.
        """
        if self._must_restart or len(self._accepted) != length:
            return None
        return self._accepted[-1]

    def reseed(self, length: int) -> None:
        """Give the random samplers the seeds of the draw after `length` tokens."""
        if self._first_random is not None:
            self._reseed(self._first_random, position=length)

    def drew(self, token: int) -> None:
        """Note that native code has drawn a token."""
        self._accepted.append(token)

    def _catch_up(self, tokens: Sequence[int]) -> None:
        known = len(self._accepted)
        if self._must_restart or known > len(tokens) or not self._agrees(tokens):
            llama().llama_sampler_reset(self._chain)
            self._accepted.clear()
            self._must_restart = False
            known = 0
        for token in tokens[known:]:
            self._accept(token)

    def _agrees(self, tokens: Sequence[int]) -> bool:
        return (
            not self._accepted or self._accepted[-1] == tokens[len(self._accepted) - 1]
        )

    def _accept(self, token: int) -> None:
        library = native()
        if library is None:
            llama().llama_sampler_accept(self._chain, token)
        else:
            code = library.skippy_accept(
                self._accept_address,
                self._chain,
                token,
                self._error,
                ERROR_BYTES,
            )
            if code == THREW:
                raise SamplingError(
                    f"token {token} was refused by the sampler chain: "
                    f"{error_text(self._error)}"
                )
        self._accepted.append(token)

    def _sample(self, row: int) -> int:
        library = native()
        if library is None:
            return int(
                llama().llama_sampler_sample(self._chain, self._context.pointer, row)
            )
        return int(
            library.skippy_sample(
                self._sample_address,
                self._chain,
                self._context.pointer,
                row,
                self._error,
                ERROR_BYTES,
            )
        )

    def _reseed(self, first: int, position: int) -> None:
        """Replace the random samplers, keeping the ones between them in order.

        Args:
            first: Index of the first of them.
            position: Of the token they will draw.
        """
        tail = self._links[first:]
        kept = [llama().llama_sampler_chain_remove(self._chain, first) for _ in tail]
        for link, sampler in zip(tail, kept, strict=True):
            if link.draws is None:
                llama().llama_sampler_chain_add(self._chain, sampler)
                continue
            llama().llama_sampler_free(sampler)
            seed = draw_seed(self._seed, CHOICE, position, link.draws)
            llama().llama_sampler_chain_add(self._chain, link.make(seed))

    def _build(self) -> Any:  # noqa: ANN401 - ctypes pointer
        chain = llama().llama_sampler_chain_init(
            llama().llama_sampler_chain_default_params()
        )
        for link in self._links:
            llama().llama_sampler_chain_add(chain, link.make(0))
        return chain


def _links(block: SamplingBlock | None, context: StageContext) -> list[_Link]:
    if block is None or not block.flags:
        return [_greedy()]
    if block.mirostat_mode:
        raise SamplingError("mirostat is not supported yet; leave mirostat_mode at 0")
    _check_numbers(block)
    links = _biases(block, context)
    for name in block.samplers:
        links.extend(_named(name, block, context))
    if block.temperature <= 0:
        links.append(_greedy())
    else:
        links.append(
            _Link(
                make=lambda seed: llama().llama_sampler_init_dist(seed),
                draws=DrawSampler.DISTRIBUTION,
            )
        )
    return links


def _greedy() -> _Link:
    return _Link(make=lambda _seed: llama().llama_sampler_init_greedy())


def _check_numbers(block: SamplingBlock) -> None:
    """Refuse what llama.cpp would compute nonsense from, or end the process for."""
    for name in NUMBERS:
        value = getattr(block, name)
        if not math.isfinite(value):
            raise SamplingError(f"{name} is {value}; it has to be a finite number")
    if block.repeat_penalty <= 0:
        raise SamplingError(
            f"repeat_penalty is {block.repeat_penalty}; it has to be above 0, 1 is none"
        )
    for token, bias in block.logit_bias:
        if math.isnan(bias) or bias == math.inf:
            raise SamplingError(f"logit_bias of token {token} is {bias}")


def _biases(block: SamplingBlock, context: StageContext) -> list[_Link]:
    size = context.model.vocabulary_size
    pairs = list(block.logit_bias)
    if block.ignore_eos:
        vocab = context.model.vocabulary_pointer
        pairs += [
            (token, float("-inf"))
            for token in range(size)
            if llama().llama_vocab_is_eog(vocab, token)
        ]
    if not pairs:
        return []
    if any(not 0 <= token < size for token, _bias in pairs):
        raise SamplingError(f"logit_bias names a token outside 0..{size - 1}")
    array = (llama().llama_logit_bias * len(pairs))(*pairs)
    return [
        _Link(
            make=lambda _seed: llama().llama_sampler_init_logit_bias(
                size, len(pairs), array
            )
        )
    ]


def _named(name: str, block: SamplingBlock, context: StageContext) -> list[_Link]:
    """Links of one sampler name; none when its values are neutral."""
    makers: dict[str, Callable[[], Callable[[int], Any] | None]] = {
        "penalties": lambda: _penalties(block, context),
        "dry": lambda: _dry(block, context),
        "top_n_sigma": lambda: _when(
            block.top_nsigma > 0,
            lambda _s: llama().llama_sampler_init_top_n_sigma(block.top_nsigma),
        ),
        "top_k": lambda: _when(
            block.top_k > 0, lambda _s: llama().llama_sampler_init_top_k(block.top_k)
        ),
        "typical_p": lambda: _when(
            block.typical_p < 1,
            lambda _s: llama().llama_sampler_init_typical(block.typical_p, MIN_KEEP),
        ),
        "top_p": lambda: _when(
            block.top_p < 1,
            lambda _s: llama().llama_sampler_init_top_p(block.top_p, MIN_KEEP),
        ),
        "min_p": lambda: _when(
            block.min_p > 0,
            lambda _s: llama().llama_sampler_init_min_p(block.min_p, MIN_KEEP),
        ),
        "xtc": lambda: _when(
            block.xtc_probability > 0,
            lambda seed: llama().llama_sampler_init_xtc(
                block.xtc_probability, block.xtc_threshold, MIN_KEEP, seed
            ),
        ),
        "temperature": lambda: _when(
            block.temperature > 0 and (block.temperature != 1 or block.dynatemp_range),
            lambda _s: llama().llama_sampler_init_temp_ext(
                block.temperature, block.dynatemp_range, block.dynatemp_exponent
            ),
        ),
    }
    if name not in makers:
        raise SamplingError(f"unknown sampler {name!r}; known: {', '.join(makers)}")
    make = makers[name]()
    if make is None:
        return []
    return [_Link(make=make, draws=DrawSampler.XTC if name == "xtc" else None)]


def _when(condition: object, make: Callable[[int], Any]) -> Callable[[int], Any] | None:
    return make if condition else None


def _penalties(
    block: SamplingBlock, context: StageContext
) -> Callable[[int], Any] | None:
    neutral = (
        block.repeat_penalty == 1
        and block.frequency_penalty == 0
        and block.presence_penalty == 0
    )
    last_n = _looked_at(block.penalty_last_n, context)
    return _when(
        not neutral and last_n > 0,
        lambda _s: llama().llama_sampler_init_penalties(
            context.model.vocabulary_size,
            last_n,
            block.repeat_penalty,
            block.frequency_penalty,
            block.presence_penalty,
        ),
    )


def _looked_at(last_n: int, context: StageContext) -> int:
    """Tokens a sampler looks back at: -1 is the whole context, and no more exist.

    llama.cpp allocates this many entries, whatever the number says.
    """
    ctx_size = context.settings.ctx_size
    return ctx_size if last_n < 0 else min(last_n, ctx_size)


def _dry(block: SamplingBlock, context: StageContext) -> Callable[[int], Any] | None:
    breakers = [text.encode() for text in block.dry_sequence_breakers]
    array = (ctypes.c_char_p * len(breakers))(*breakers)
    return _when(
        block.dry_multiplier > 0,
        lambda _s: llama().llama_sampler_init_dry(
            context.model.vocabulary_pointer,
            block.dry_multiplier,
            block.dry_base,
            block.dry_allowed_length,
            _looked_at(block.dry_penalty_last_n, context),
            array,
            len(breakers),
        ),
    )
