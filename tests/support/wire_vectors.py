"""Golden frames: a sentence, the fields as JSON values, and the bytes with offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from skippyd.core.wire.kinds import MessageKind, ReplyKind
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.replies import Failure, MtpDraft, StageReply, StageStats
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import FailureCode


FOLDER = Path(__file__).parents[1] / "vectors" / "wire" / "gen8"


@attrs.frozen(kw_only=True)
class Vector:
    """One golden frame: its file name, its fields and its bytes."""

    name: str
    fields: dict[str, Any]
    data: bytes

    @property
    def sort(self) -> str:
        """What the frame is: message, reply, failure, ready or auth."""
        return str(self.fields["value"])


def load_vectors(*sorts: str) -> list[Vector]:
    """Read every golden frame of these sorts, in the order of their names."""
    vectors = [_load(path) for path in sorted(FOLDER.glob("*.txt"))]
    return [vector for vector in vectors if vector.sort in sorts]


def message_of(vector: Vector) -> StageMessage:
    """Build the message that a vector's fields describe."""
    fields = _plain(vector.fields, "value", "activation_width")
    if sampling := _nested(vector.fields, "sampling"):
        fields["sampling"] = SamplingBlock(**sampling)
    for name in ("activation", "raw"):
        if name in fields:
            fields[name] = bytes.fromhex(fields[name])
    fields["kind"] = MessageKind[fields["kind"]]
    return StageMessage(**fields)


def reply_of(vector: Vector) -> StageReply | Failure:
    """Build the reply that a vector's fields describe."""
    fields = _plain(vector.fields, "value")
    if vector.sort == "failure":
        return Failure(
            FailureCode[fields["code"]], fields["stage_index"], fields["text"]
        )
    if draft := _nested(vector.fields, "mtp_draft"):
        fields["mtp_draft"] = MtpDraft(**draft)
    fields["stats"] = StageStats(**_nested(vector.fields, "stats"))
    fields["kind"] = ReplyKind[fields["kind"]]
    return StageReply(**fields)


def _load(path: Path) -> Vector:
    head, _, tail = path.read_text(encoding="utf-8").partition("----\n")
    _, _, listing = head.partition("\n\n")
    fields: dict[str, Any] = {}
    for line in listing.splitlines():
        name, _, value = line.partition(": ")
        fields[name] = _tupled(json.loads(value))
    data = b""
    for line in tail.splitlines():
        offset, _, rest = line.partition("  ")
        assert int(offset, 16) == len(data), f"{path.name}: offset {offset} is wrong"
        data += bytes.fromhex(rest.partition(";")[0])
    return Vector(name=path.stem, fields=fields, data=data)


def _tupled(value: object) -> object:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _plain(fields: dict[str, Any], *without: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if "." not in name and name not in without
    }


def _nested(fields: dict[str, Any], part: str) -> dict[str, Any]:
    return {
        name.removeprefix(f"{part}."): value
        for name, value in fields.items()
        if name.startswith(f"{part}.")
    }
