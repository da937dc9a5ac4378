"""The messages of a chat request."""

from __future__ import annotations

from typing import Literal, cast, get_args

import attrs

from skippyd.core.openai.errors import ApiRefusedError, unsupported_feature
from skippyd.core.openai.fields import FieldReader, as_text, refuse, shown
from skippyd.core.openai.unbuilt import (
    MESSAGE_UNBUILT,
    refuse_unbuilt,
    refuse_unknown,
)


Role = Literal["system", "user", "assistant"]

MAX_MESSAGES = 4096
MAX_PARTS = 4096

_ROLES: tuple[str, ...] = get_args(Role)
# Roles that OpenAI knows and no template here is given yet.
_UNBUILT_ROLES = ("tool", "function")


@attrs.frozen
class Message:
    """One turn; the content is plain text."""

    role: Role
    content: str


def read_messages(reader: FieldReader) -> tuple[Message, ...]:
    """The `messages` of a chat request.

    `developer` is OpenAI's newer name for `system` and is read as such.  The text
    parts of one message are joined with line feeds.

    Raises:
        ApiRefusedError: With the index of the message.
    """
    value = reader.value("messages")
    if value is None:
        raise refuse("messages is missing; give at least one message", "messages")
    if not isinstance(value, list):
        raise refuse(f"messages must be a list, not {shown(value)}", "messages")
    if not 1 <= len(value) <= MAX_MESSAGES:
        raise refuse(
            f"messages must hold 1 to {MAX_MESSAGES} messages, not {len(value)}",
            "messages",
        )
    messages = tuple(_read_message(item, index) for index, item in enumerate(value))
    if not any(message.content for message in messages):
        raise refuse("messages produced an empty prompt; give some text", "messages")
    return messages


def _read_message(item: object, index: int) -> Message:
    where = f"messages[{index}]"
    if not isinstance(item, dict):
        raise refuse(f"{where} must be an object, not {shown(item)}", where)
    reader = FieldReader(item, f"{where}.")
    refuse_unknown(reader, {"role", "content", *MESSAGE_UNBUILT})
    role = _read_role(reader)
    refuse_unbuilt(reader, MESSAGE_UNBUILT)
    return Message(role, _read_content(reader))


def _read_role(reader: FieldReader) -> Role:
    where = reader.path + "role"
    role = reader.text("role")
    if role is None:
        raise refuse(f"{where} is missing; use {', '.join(_ROLES)}", where)
    if role == "developer":
        return "system"
    if role in _UNBUILT_ROLES:
        raise ApiRefusedError(
            unsupported_feature(f"{where} = {role!r} is not supported yet", where)
        )
    if role not in _ROLES:
        raise refuse(
            f"{where} must be one of {', '.join(_ROLES)}, not {shown(role)}", where
        )
    return cast("Role", role)


def _read_content(reader: FieldReader) -> str:
    where = reader.path + "content"
    match reader.value("content"):
        case None:
            raise refuse(f"{where} is missing; give a string", where)
        case list() as parts:
            return _join_parts(parts, where)
        case value:
            return as_text(value, where)


def _join_parts(parts: list[object], where: str) -> str:
    if len(parts) > MAX_PARTS:
        raise refuse(f"{where} must hold at most {MAX_PARTS} parts", where)
    return "\n".join(
        _read_part(part, f"{where}[{index}]") for index, part in enumerate(parts)
    )


def _read_part(part: object, where: str) -> str:
    if not isinstance(part, dict):
        raise refuse(f"{where} must be an object, not {shown(part)}", where)
    reader = FieldReader(part, f"{where}.")
    kind = reader.text("type")
    if kind is None:
        raise refuse(f"{where}.type is missing; use 'text'", f"{where}.type")
    if kind != "text":
        raise ApiRefusedError(
            unsupported_feature(
                f"{where}.type = {shown(kind)} is not supported yet; send text only",
                f"{where}.type",
            )
        )
    refuse_unknown(reader, {"type", "text"})
    text = reader.text("text")
    if text is None:
        raise refuse(f"{where}.text is missing; give a string", f"{where}.text")
    return text
