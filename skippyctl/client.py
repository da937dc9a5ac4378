"""The admin socket, typed: one method for each endpoint.

Each method imports the documents it needs when it is called: a command pays for its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from skippyctl.connection import AdminConnection
from skippyctl.reading import read, written


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skippyd.admin import schema, wishes

T = TypeVar("T")

READ_SECONDS = 15.0
DOCTOR_SECONDS = 70.0
WRITE_SECONDS = 130.0
"""A little longer than the daemon takes before it gives up itself."""


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
        from skippyd.admin.schema_status import Status  # noqa: PLC0415 - lazy

        return self._ask("status", Status)

    def follow_status(self) -> Iterator[schema.Status]:
        """The status at each change, and once a second."""
        from skippyd.admin.schema_status import Status  # noqa: PLC0415 - lazy

        return self._follow("status.watch", Status, None)

    def claims(self) -> schema.Claims:
        """Accepted claims."""
        from skippyd.admin.schema_lists import Claims  # noqa: PLC0415 - lazy

        return self._ask("claims", Claims)

    def leases(self) -> schema.Leases:
        """Leases of accepted claims."""
        from skippyd.admin.schema_lists import Leases  # noqa: PLC0415 - lazy

        return self._ask("leases", Leases)

    def lanes(self) -> schema.Lanes:
        """Lanes of this node's stages."""
        from skippyd.admin.schema_lists import Lanes  # noqa: PLC0415 - lazy

        return self._ask("lanes", Lanes)

    def sessions(self) -> schema.Sessions:
        """Sessions of this node's stages."""
        from skippyd.admin.schema_lists import Sessions  # noqa: PLC0415 - lazy

        return self._ask("sessions", Sessions)

    def nodes(self) -> schema.Nodes:
        """This node and its peers."""
        from skippyd.admin.schema_lists import Nodes  # noqa: PLC0415 - lazy

        return self._ask("nodes", Nodes)

    def telemetry(self, wish: wishes.After) -> schema.Telemetry:
        """Figures of the last minute and the newest spans."""
        from skippyd.admin.schema_live import Telemetry  # noqa: PLC0415 - lazy

        return self._ask("telemetry", Telemetry, wish)

    def follow_telemetry(self, wish: wishes.After) -> Iterator[schema.Telemetry]:
        """The same once a second, each time with the new spans."""
        from skippyd.admin.schema_live import Telemetry  # noqa: PLC0415 - lazy

        return self._follow("telemetry.watch", Telemetry, wish)

    def logs(self, wish: wishes.After) -> schema.Logs:
        """The newest lines of the daemon's log."""
        from skippyd.admin.schema_live import Logs  # noqa: PLC0415 - lazy

        return self._ask("logs", Logs, wish)

    def follow_logs(self, wish: wishes.After) -> Iterator[schema.Logs]:
        """The same, and then each line as it comes."""
        from skippyd.admin.schema_live import Logs  # noqa: PLC0415 - lazy

        return self._follow("logs.watch", Logs, wish)

    def follow_events(
        self, wish: wishes.WatchEvents
    ) -> Iterator[schema.Event | schema.Events]:
        """Events as they come; an `Events` without items tells how many are gone."""
        from skippyd.admin.schema_live import Event, Events  # noqa: PLC0415

        for document in self._connection.stream("events.watch", written(wish)):
            if document.get("schema") == "skippy.events/1":
                yield read(document, Events, source="events.watch")
            else:
                yield read(document, Event, source="events.watch")

    def fence(self) -> schema.Fence:
        """The fence store."""
        from skippyd.admin.schema_checks import Fence  # noqa: PLC0415 - lazy

        return self._ask("fence.show", Fence)

    def safe_mode(self) -> schema.SafeModeReport:
        """Safe mode, requested and in force."""
        from skippyd.admin.schema_status import SafeModeReport  # noqa: PLC0415 - lazy

        return self._ask("safe_mode.status", SafeModeReport)

    def doctor(self) -> schema.Doctor:
        """What the daemon finds wrong."""
        from skippyd.admin.schema_checks import Doctor  # noqa: PLC0415 - lazy

        return self._ask("doctor", Doctor, timeout_s=DOCTOR_SECONDS)

    def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        """Begin a deployment."""
        from skippyd.admin.schema_changes import Deployment  # noqa: PLC0415 - lazy

        return self._change("deploy", Deployment, wish)

    def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        """Begin to withdraw a model."""
        from skippyd.admin.schema_changes import Deployment  # noqa: PLC0415 - lazy

        return self._change("withdraw", Deployment, wish)

    def drain(self, wish: wishes.Drain) -> schema.Done:
        """Take no new stages, or take them again."""
        from skippyd.admin.schema_changes import Done  # noqa: PLC0415 - lazy

        return self._change("drain", Done, wish)

    def load_local(self, wish: wishes.LoadLocal) -> schema.Done:
        """Serve a whole model on the daemon's node alone."""
        from skippyd.admin.schema_changes import Done  # noqa: PLC0415 - lazy

        return self._change("load_local", Done, wish)

    def stop(self, wish: wishes.Stop) -> schema.Done:
        """End stages of this node."""
        from skippyd.admin.schema_changes import Done  # noqa: PLC0415 - lazy

        return self._change("stop", Done, wish)

    def invite(self) -> schema.Invitation:
        """Make a token for one other machine."""
        from skippyd.admin.schema_changes import Invitation  # noqa: PLC0415 - lazy

        return self._change("invite", Invitation, None)

    def join(self, wish: wishes.Join) -> schema.Joined:
        """Use such a token."""
        from skippyd.admin.schema_changes import Joined  # noqa: PLC0415 - lazy

        return self._change("join", Joined, wish)

    def init_fence(self, wish: wishes.InitFence) -> schema.Done:
        """End a quarantine."""
        from skippyd.admin.schema_changes import Done  # noqa: PLC0415 - lazy

        return self._change("fence.init", Done, wish)

    def safe_mode_on(self, wish: wishes.SafeModeOn) -> schema.SafeModeReport:
        """Request safe mode."""
        from skippyd.admin.schema_status import SafeModeReport  # noqa: PLC0415 - lazy

        return self._change("safe_mode.on", SafeModeReport, wish)

    def safe_mode_off(self, wish: wishes.SafeModeOff) -> schema.SafeModeReport:
        """Take the request back."""
        from skippyd.admin.schema_status import SafeModeReport  # noqa: PLC0415 - lazy

        return self._change("safe_mode.off", SafeModeReport, wish)

    def _ask(
        self,
        method: str,
        type_: type[T],
        wish: object = None,
        timeout_s: float = READ_SECONDS,
    ) -> T:
        params = None if wish is None else written(wish)
        document = self._connection.call(method, params, timeout_s=timeout_s)
        return read(document, type_, source=method)

    def _change(self, method: str, type_: type[T], wish: object) -> T:
        return self._ask(method, type_, wish, WRITE_SECONDS)

    def _follow(self, method: str, type_: type[T], wish: object) -> Iterator[T]:
        params = None if wish is None else written(wish)
        for document in self._connection.stream(method, params):
            yield read(document, type_, source=method)
