"""A flag that is known and not built yet is refused by name, never ignored."""

from __future__ import annotations

import argparse

import pytest

from skippyd.cli.main import main
from skippyd.cli.unbuilt import (
    BINARY_LATER,
    OPENAI_SERVER_LATER,
    SERVE_LATER,
    refuse_unbuilt,
)
from skippyd.errors import ExitCode, UsageError


@pytest.mark.parametrize("flag", [*SERVE_LATER, *BINARY_LATER, *OPENAI_SERVER_LATER])
def test_each_later_flag_is_refused_with_or_without_a_value(flag: str) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    refuse_unbuilt(parser, (*SERVE_LATER, *BINARY_LATER, *OPENAI_SERVER_LATER))
    for words in ([flag], [flag, "5"], [f"{flag}=5"]):
        with pytest.raises(UsageError, match=f"^{flag} is not supported yet"):
            parser.parse_args(words)


def test_later_flags_do_not_stand_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    refuse_unbuilt(parser, SERVE_LATER)
    assert not [flag for flag in SERVE_LATER if flag in parser.format_help()]


def test_the_command_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve-binary", "--config", "x.json", "--telemetry-level", "debug"])
    assert code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said == "skippyd: --telemetry-level is not supported yet; leave it out\n"
