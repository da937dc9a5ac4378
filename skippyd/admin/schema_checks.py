"""What is looked at when something is wrong: the fence, and doctor's checks."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class FenceRow:
    """One record of the fence; it is never forgotten.

    Args:
        term: The accepted term; "0" when only stops are remembered.
        stopped: Runs that were stopped, as TERM/RUN.
    """

    model_id: str
    package_ref: str
    manifest_sha256: str
    term: str
    run_id: str
    coordinator_id: str
    stopped: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Fence:
    """`skippyctl fence show`.

    Args:
        store: Path of the store on the node.
        quarantine_reason: Why this node does not vote; empty when it does.
        quarantine_left_ms: When it votes by itself.
    """

    schema: str = "skippy.fence/1"
    store: str
    instance_id: str
    is_quarantined: bool
    quarantine_reason: str = ""
    quarantine_left_ms: int | None = None
    items: tuple[FenceRow, ...]


@attrs.frozen(kw_only=True)
class CheckRow:
    """One thing that `doctor` looked at.

    Args:
        verdict: ok, warning or failed.
        remedy: What to do; empty when it is ok.
    """

    check: str
    verdict: str
    finding: str
    remedy: str = ""


@attrs.frozen(kw_only=True)
class Doctor:
    """`skippyctl doctor`."""

    schema: str = "skippy.doctor/1"
    items: tuple[CheckRow, ...]
