"""The decode message that follows another: foreseen, and its head written ahead.

Between two tokens of a request everything on the wire but the token and its activation
is known beforehand. A stage that waits may thus prepare what it will send next, and
recognise what it will get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skippyd.core.wire.encode import encode_message, encode_reply
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.layout import (
    CURRENT_TOKEN_AT,
    DECODE_STEP_AT,
    I32,
    MESSAGE_PREFIX,
    POS_START_AT,
    REPLY_HEAD,
    REPLY_PREDICTED_AT,
)
from skippyd.core.wire.messages import forwarded
from skippyd.core.wire.replies import predicted_token
from skippyd.units import I32_MAX


if TYPE_CHECKING:
    from skippyd.core.wire.activation import Payload
    from skippyd.core.wire.messages import StageMessage

HEAD_TOKEN_AT: Final = (CURRENT_TOKEN_AT, MESSAGE_PREFIX.size)
"""Where the head of a plain decode says its token: in the state and in the sideband."""
REPLY_TOKEN_AT: Final = (REPLY_PREDICTED_AT, REPLY_HEAD.size)
"""Where a prediction says its token: as the first one, and in the list of all."""
ANY_PREDICTION: Final = encode_reply(predicted_token(0))
"""A prediction without statistics, but for its token."""


def has_next(message: StageMessage) -> bool:
    """Whether it is a plain decode of one token, so that the next can be foreseen."""
    return (
        message.kind is MessageKind.DECODE_EMBD
        and message.token_count == 1
        and message.tokens == (message.current_token,)
        and message.sampling is None
        and message.chat_metadata is None
        and not message.positions
    )


def follows(message: StageMessage, previous: StageMessage) -> bool:
    """Whether it decodes the next token after `previous`, for which `has_next` holds."""
    return (
        has_next(message)
        and message.pos_start == previous.pos_start + 1
        and message.decode_step == previous.decode_step + 1
        and message.request_id == previous.request_id
        and message.session_id == previous.session_id
        and message.prompt_token_count == previous.prompt_token_count
        and message.checkpoint_generation == previous.checkpoint_generation
        and message.source_stage_index == previous.source_stage_index
        and message.seq_id == previous.seq_id
        and message.phase == previous.phase
        and message.flags == previous.flags
    )


class NextHead:
    """The head of a frame that carries a request's next token from stage to stage.

    Args:
        message: The token now; `has_next` holds for it.
        source_stage_index: The stage that sends the frame.
        activation: What goes with a token; of the next one only its size matters.

    Raises:
        LocalProtocolError: As `encode_message`.
    """

    def __init__(
        self, message: StageMessage, *, source_stage_index: int, activation: Payload
    ) -> None:
        onward = forwarded(
            message, source_stage_index=source_stage_index, activation=activation
        )
        head, _activation = encode_message(onward)
        self.bytes = bytearray(head)
        """The head; changed in place."""
        self.stand_behind(message)

    def stand_behind(self, message: StageMessage) -> None:
        """Be the head of the token after this one."""
        I32.pack_into(self.bytes, POS_START_AT, message.pos_start + 1)
        # It is any peer's number: where it cannot grow, no frame is the foreseen one.
        step = min(message.decode_step + 1, I32_MAX)
        I32.pack_into(self.bytes, DECODE_STEP_AT, step)
