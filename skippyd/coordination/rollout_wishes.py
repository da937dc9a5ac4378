"""What a coordinator keeps on disk: its highest term, and what is wanted of it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.config.convert import structure, unstructure
from skippyd.errors import ConfigError, ExitCode, SkippyError
from skippyd.ids import NodeId, Term


if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("skippyd.rollout")

SCHEMA = "skippy.coordinator/1"
FILE_MAX_BYTES = 1 << 20
FILE_MODE = 0o600
MAX_WISHES = 64


class CoordinatorFileError(SkippyError):
    """What a coordinator must remember cannot be written."""

    exit_code = ExitCode.TRY_AGAIN


@attrs.frozen(kw_only=True)
class Wish:
    """One model that is to run.

    Args:
        model_id: The name it is served under.
        model_sha256: Content hash of the model.
        deployed_by: The node where the operator said so; it comes first when a
            coordinator is lost.
        context: KV cells; None lets the planner choose.
        lanes: Requests at once; None lets the planner choose.
        node_ids: The nodes that are to take part, each with a stage; none for any.
        may_replace: Whether another coordinator's run may be ended for this.
        is_adopted: Whether another node said so, and this one took it over.
        ran_on: The nodes of its last published run: a small minority of them does not
            go on by itself, the others may do so.
    """

    model_id: str
    model_sha256: str
    deployed_by: NodeId
    context: int | None = None
    lanes: int | None = None
    node_ids: tuple[NodeId, ...] = ()
    may_replace: bool = False
    is_adopted: bool = False
    ran_on: tuple[NodeId, ...] = ()


class CoordinatorMemory(Protocol):
    """The highest term of this coordinator and its wishes, durable."""

    @property
    def highest_term(self) -> Term:
        """No claim of this coordinator had a higher term."""
        ...

    def wishes(self) -> tuple[Wish, ...]:
        """What is wanted, sorted by model."""
        ...

    async def remember_term(self, term: Term) -> None:
        """Make a term durable; a lower one than known changes nothing.

        Raises:
            CoordinatorFileError: It did not become durable.
        """
        ...

    async def remember_wish(self, wish: Wish) -> None:
        """Make a wish durable, in place of an older one of its model.

        Raises:
            CoordinatorFileError: It did not become durable, or there are too many.
        """
        ...

    async def forget_wish(self, model_id: str) -> None:
        """Forget a wish, if there is one.

        Raises:
            CoordinatorFileError: It did not become durable.
        """
        ...


@attrs.frozen(kw_only=True)
class _Document:
    schema: str
    # A decimal string: common tools round integers of 64 bits.
    highest_term: str
    wishes: tuple[Wish, ...] = ()


@attrs.define(eq=False)
class CoordinatorFile:
    """`coordinator.json` in the state directory, replaced whole at each change."""

    path: Path
    _term: Term = attrs.field(default=Term(0), init=False)
    _wishes: dict[str, Wish] = attrs.field(factory=dict, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @classmethod
    def open(cls, path: Path) -> CoordinatorFile:
        """Read the file if it is there.

        Raises:
            ConfigError: It is not one that we wrote; the message says what to do.
        """
        opened = cls(path)
        try:
            with path.open("rb") as file:
                text = file.read(FILE_MAX_BYTES + 1)
        except FileNotFoundError:
            return opened
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
        document = _parsed(path, text)
        opened._term = _term(path, document.highest_term)
        opened._wishes = {wish.model_id: wish for wish in document.wishes}
        return opened

    @property
    def highest_term(self) -> Term:
        """See `CoordinatorMemory`."""
        return self._term

    def wishes(self) -> tuple[Wish, ...]:
        """See `CoordinatorMemory`."""
        return tuple(wish for _, wish in sorted(self._wishes.items()))

    async def remember_term(self, term: Term) -> None:
        """See `CoordinatorMemory`."""
        async with self._lock:
            if term > self._term:
                await self._write(term, self._wishes)
                self._term = term

    async def remember_wish(self, wish: Wish) -> None:
        """See `CoordinatorMemory`."""
        async with self._lock:
            if self._wishes.get(wish.model_id) == wish:
                return
            wishes = self._wishes | {wish.model_id: wish}
            if len(wishes) > MAX_WISHES:
                raise CoordinatorFileError(
                    f"this node coordinates {MAX_WISHES} models already; withdraw one"
                )
            await self._write(self._term, wishes)
            self._wishes = wishes

    async def forget_wish(self, model_id: str) -> None:
        """See `CoordinatorMemory`."""
        async with self._lock:
            if model_id in self._wishes:
                wishes = {k: v for k, v in self._wishes.items() if k != model_id}
                await self._write(self._term, wishes)
                self._wishes = wishes

    async def _write(self, term: Term, wishes: dict[str, Wish]) -> None:
        document = _Document(
            schema=SCHEMA,
            highest_term=str(term),
            wishes=tuple(wish for _, wish in sorted(wishes.items())),
        )
        data = json.dumps(unstructure(document), indent=1).encode() + b"\n"
        # Not abandoned when cancelled: memory and disk must not part.
        await trio.to_thread.run_sync(_replace, self.path, data)


async def forget_wish(memory: CoordinatorMemory, model_id: str) -> None:
    """Forget a wish that is over; a disk that fails only brings it back at a restart."""
    try:
        await memory.forget_wish(model_id)
    except CoordinatorFileError:
        logger.exception("event=wish_not_forgotten model=%s", model_id)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CoordinatorFileError(
            f"{path} cannot be written: {error.strerror or error}; this node claims "
            "nothing until it can: free space, check the disk and the folder's owner"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        os.fsync(descriptor)


def _parsed(path: Path, text: bytes) -> _Document:
    if len(text) > FILE_MAX_BYTES:
        raise _unreadable(path, f"it is longer than {FILE_MAX_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"it is not JSON: {error}") from error
    document = structure(value, _Document, source=str(path))
    if document.schema != SCHEMA:
        raise _unreadable(path, f"its schema is {document.schema!r}, not {SCHEMA!r}")
    return document


def _term(path: Path, text: str) -> Term:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(2**63)):
        raise _unreadable(path, f"its highest_term is {text[:40]!r}, not a number")
    return Term(int(text))


def _unreadable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be read: {reason}; move it aside to start without remembered "
        "deployments: the claims of this node stay newer than all it meets"
    )
