"""The admin socket, typed: one method for each endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from skippyctl.connection import AdminConnection
from skippyd.admin import schema, wishes
from skippyd.config.complaints import InvalidConfigError
from skippyd.config.convert import structure, unstructure
from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")

READ_SECONDS = 15.0
DOCTOR_SECONDS = 70.0
WRITE_SECONDS = 130.0
"""A little longer than the daemon takes before it gives up itself."""


class UnknownAnswerError(SkippyError):
    """The daemon answered with a document of another version."""


class AdminClient:
    """A connection to the daemon of this machine; close it, or use it with `with`.

    Every method raises `RefusedByDaemonError` with the daemon's reason, and
    `DaemonUnreachableError` when it does not answer.

    Args:
        path: The admin socket.

    Raises:
        DaemonUnreachableError: Nothing answers.
        SocketDeniedError: This user may not open the socket.
    """

    def __init__(self, path: Path) -> None:
        self._connection = AdminConnection(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def status(self) -> schema.Status:
        """Daemon, safe mode, run and chain."""
        return self._ask("status", schema.Status)

    def follow_status(self) -> Iterator[schema.Status]:
        """The status at each change, and once a second."""
        return self._follow("status.watch", schema.Status, None)

    def claims(self) -> schema.Claims:
        """Accepted claims."""
        return self._ask("claims", schema.Claims)

    def leases(self) -> schema.Leases:
        """Leases of accepted claims."""
        return self._ask("leases", schema.Leases)

    def lanes(self) -> schema.Lanes:
        """Lanes of this node's stages."""
        return self._ask("lanes", schema.Lanes)

    def sessions(self) -> schema.Sessions:
        """Sessions of this node's stages."""
        return self._ask("sessions", schema.Sessions)

    def nodes(self) -> schema.Nodes:
        """This node and its peers."""
        return self._ask("nodes", schema.Nodes)

    def telemetry(self, wish: wishes.After) -> schema.Telemetry:
        """Figures of the last minute and the newest spans."""
        return self._ask("telemetry", schema.Telemetry, wish)

    def follow_telemetry(self, wish: wishes.After) -> Iterator[schema.Telemetry]:
        """The same once a second, each time with the new spans."""
        return self._follow("telemetry.watch", schema.Telemetry, wish)

    def logs(self, wish: wishes.After) -> schema.Logs:
        """The newest lines of the daemon's log."""
        return self._ask("logs", schema.Logs, wish)

    def follow_logs(self, wish: wishes.After) -> Iterator[schema.Logs]:
        """The same, and then each line as it comes."""
        return self._follow("logs.watch", schema.Logs, wish)

    def follow_events(
        self, wish: wishes.WatchEvents
    ) -> Iterator[schema.Event | schema.Events]:
        """Events as they come; an `Events` without items tells how many are gone."""
        for document in self._connection.stream("events.watch", unstructure(wish)):
            if document.get("schema") == "skippy.events/1":
                yield _typed(document, schema.Events, "events.watch")
            else:
                yield _typed(document, schema.Event, "events.watch")

    def fence(self) -> schema.Fence:
        """The fence store."""
        return self._ask("fence.show", schema.Fence)

    def safe_mode(self) -> schema.SafeModeReport:
        """Safe mode, requested and in force."""
        return self._ask("safe_mode.status", schema.SafeModeReport)

    def doctor(self) -> schema.Doctor:
        """What the daemon finds wrong."""
        return self._ask("doctor", schema.Doctor, timeout_s=DOCTOR_SECONDS)

    def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        """Begin a deployment."""
        return self._change("deploy", schema.Deployment, wish)

    def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        """Begin to withdraw a model."""
        return self._change("withdraw", schema.Deployment, wish)

    def drain(self, wish: wishes.Drain) -> schema.Done:
        """Take no new stages, or take them again."""
        return self._change("drain", schema.Done, wish)

    def stop(self, wish: wishes.Stop) -> schema.Done:
        """End stages of this node."""
        return self._change("stop", schema.Done, wish)

    def invite(self) -> schema.Invitation:
        """Make a token for one other machine."""
        return self._change("invite", schema.Invitation, None)

    def join(self, wish: wishes.Join) -> schema.Joined:
        """Use such a token."""
        return self._change("join", schema.Joined, wish)

    def init_fence(self, wish: wishes.InitFence) -> schema.Done:
        """End a quarantine."""
        return self._change("fence.init", schema.Done, wish)

    def safe_mode_on(self, wish: wishes.SafeModeOn) -> schema.SafeModeReport:
        """Request safe mode."""
        return self._change("safe_mode.on", schema.SafeModeReport, wish)

    def safe_mode_off(self, wish: wishes.SafeModeOff) -> schema.SafeModeReport:
        """Take the request back."""
        return self._change("safe_mode.off", schema.SafeModeReport, wish)

    def _ask(
        self,
        method: str,
        type_: type[T],
        wish: object = None,
        timeout_s: float = READ_SECONDS,
    ) -> T:
        params = None if wish is None else unstructure(wish)
        document = self._connection.call(method, params, timeout_s=timeout_s)
        return _typed(document, type_, method)

    def _change(self, method: str, type_: type[T], wish: object) -> T:
        return self._ask(method, type_, wish, WRITE_SECONDS)

    def _follow(self, method: str, type_: type[T], wish: object) -> Iterator[T]:
        params = None if wish is None else unstructure(wish)
        for document in self._connection.stream(method, params):
            yield _typed(document, type_, method)


def _typed(document: dict[str, object], type_: type[T], method: str) -> T:
    try:
        return structure(document, type_, source=method)
    except InvalidConfigError as error:
        raise UnknownAnswerError(
            f"the daemon's answer to {method} is of another version ({error}); "
            "restart skippyd after an upgrade, or use the skippyctl that came with it"
        ) from error
