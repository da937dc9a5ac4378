from __future__ import annotations

import pytest

from skippyd.config.daemon import DaemonConfig, StagesTable, TimersTable
from skippyd.config.endpoints import Endpoint
from skippyd.errors import ConfigError


def test_the_defaults_serve_this_machine_alone() -> None:
    config = DaemonConfig()
    assert config.control.bind == Endpoint("127.0.0.1", 9401)
    assert config.stages.host == "127.0.0.1"
    assert config.openai.bind is None
    assert not config.stages.allow_plaintext
    assert config.node.state_dir == "/var/lib/skippyd"
    assert config.admin.socket == "/run/skippyd/admin.sock"
    assert config.timers.status_every_ms == 2_000


@pytest.mark.parametrize(
    ("first", "last"), [(19_100, 19_000), (-1, 5), (0, 65_536), (5, 0)]
)
def test_stage_ports_are_a_range(first: int, last: int) -> None:
    with pytest.raises(ConfigError, match="no range of ports"):
        StagesTable(first_port=first, last_port=last)


@pytest.mark.parametrize("value", [0, 9, 4 * 60 * 60 * 1000 + 1])
def test_timers_are_milliseconds_within_bounds(value: int) -> None:
    with pytest.raises(ConfigError, match=f"{value} is outside"):
        TimersTable(status_every_ms=value)
    with pytest.raises(ConfigError, match="drain_ms"):
        TimersTable(drain_ms=value)
