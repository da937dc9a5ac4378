from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skippyd.cli import example_config
from skippyd.config.examples import example_stage_text


if TYPE_CHECKING:
    import pytest


def test_standard_output_is_the_document_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    example_config.add_arguments(parser)
    assert example_config.run(parser.parse_args([])) == 0
    printed = capsys.readouterr()
    assert printed.out == example_stage_text()
    assert printed.err.startswith("model_path is null: name a GGUF file")


def test_the_help_says_what_the_example_still_needs() -> None:
    parser = argparse.ArgumentParser()
    example_config.add_arguments(parser)
    assert "once model_path names a GGUF file" in " ".join(parser.format_help().split())
