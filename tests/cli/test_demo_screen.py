"""What a person sees: plain lines in a pipe, bars and a table in a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.cli.demo_screen import DemoScreen, WordWrap, printable
from skippyd.proving.chain import ChainPlan
from skippyd.proving.demo import Answer, Proof, StageFigures
from skippyd.proving.reference import ReferenceAnswer


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


PLAN = ChainPlan(model_path=Path("m.gguf"), model_id="SmolLM2", bounds=(0, 1, 29, 30))
FIGURES = [
    StageFigures(
        stage_id=f"stage-{index}",
        stage_index=index,
        layer_start=start,
        layer_end=end,
        pid=4000 + index,
        bind_addr="127.0.0.1:5",
        resident_bytes=79_600_000 * (index + 1),
        ms_per_token=5.25 * (index + 1),
        capture="native",
    )
    for index, (start, end) in enumerate([(0, 1), (1, 29), (29, 30)])
]
ANSWER = Answer(
    text="Because.",
    prompt_tokens=9,
    completion_tokens=3,
    finish_reason="stop",
    ttft_ms=103.4,
    tpot_ms=15.62,
)
UNSPLIT = ReferenceAnswer(
    prompt=(1,),
    tokens=(2,),
    text="Because.",
    finish_reason="stop",
    rows=(np.zeros(2, np.float32),),
    tpot_ms=15.1,
)


def proof(difference: float | None, *, is_identical: bool) -> Proof:
    return Proof(
        unsplit=UNSPLIT,
        is_identical=is_identical,
        max_abs_difference=difference,
        rows=3,
    )


def shown(out: io.StringIO, talk: io.StringIO) -> None:
    screen = DemoScreen(out, talk)
    with screen.loading(PLAN) as on_progress:
        for index in range(3):
            on_progress(index, 0.5)
            on_progress(index, 1.0)
    with screen.waiting("waiting for a first token"):
        pass
    screen.question("Why?")
    for piece in ("Be", "cause", "."):
        screen.text(piece)
    screen.stages(FIGURES)
    screen.verdict(ANSWER, proof(0.0, is_identical=True))
    screen.serving("http://127.0.0.1:9337/v1", "SmolLM2")


def test_a_pipe_gets_plain_lines() -> None:
    out, talk = io.StringIO(), io.StringIO()
    shown(out, talk)
    assert talk.getvalue() == "SmolLM2 in 3 stages: layers 0 | 1-28 | 29\n"
    assert out.getvalue().splitlines() == [
        "",
        "? Why?",
        "Because.",
        "",
        "stage-0  layers 0  75.9 MiB  5.25 ms per token  pid 4000",
        "stage-1  layers 1-28  151 MiB  10.50 ms per token  pid 4001",
        "stage-2  layers 29  227 MiB  15.75 ms per token  pid 4002",
        "IDENTICAL to the unsplit model: 3 rows of logits, largest difference 0.0",
        "first token after 103 ms, then 15.6 ms a token (unsplit: 15.1 ms)",
        "",
        "OpenAI address  http://127.0.0.1:9337/v1",
        "model           SmolLM2",
        "Ctrl-C ends all stages",
    ]


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_terminal_gets_bars_and_a_table_that_fits(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    out, talk = Terminal(), Terminal()
    shown(out, talk)
    assert "stage-1  layers 1-28" in talk.getvalue()
    assert "100 %" in talk.getvalue()
    assert "waiting for a first token ..." in talk.getvalue()
    seen = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    lines = [line.split() for line in seen.splitlines()]
    assert ["stage", "layers", "memory", "ms/token", "pid"] in lines
    assert ["stage-1", "1-28", "151", "MiB", "10.50", "4001"] in lines
    assert max(len(line) for line in seen.splitlines()) <= int(columns)
    assert "\x1b[32m" not in out.getvalue()
    assert "Because." in out.getvalue()


def test_a_difference_is_not_hidden() -> None:
    out = io.StringIO()
    screen = DemoScreen(out, io.StringIO())
    screen.verdict(ANSWER, proof(0.25, is_identical=False))
    screen.verdict(ANSWER, proof(None, is_identical=False))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("DIFFERS from the unsplit model: 3 rows")
    assert lines[0].endswith("largest difference 0.25")
    assert lines[2].endswith("largest difference not comparable")


def test_a_model_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\tc\n\r") == "a\ufffd[2Jb\ufffd\tc\n\ufffd"
    assert printable("Größe 👍 日本") == "Größe 👍 日本"


def wrapped(width: int, pieces: list[str]) -> str:
    wrap = WordWrap(width)
    return "".join(wrap.add(piece) for piece in pieces) + wrap.end()


def test_words_are_not_broken() -> None:
    assert wrapped(10, ["the qu", "ick bro", "wn fox"]) == "the quick\nbrown fox"
    assert wrapped(10, ["one\n", "\n", "two three"]) == "one\n\ntwo three"


@given(
    pieces=st.lists(st.text(alphabet="ab \n", max_size=12), max_size=30),
    width=st.integers(4, 30),
)
def test_wrapping_changes_white_space_alone(pieces: list[str], width: int) -> None:
    text = wrapped(width, pieces)
    assert text.split() == "".join(pieces).split()
    longest = max((len(word) for word in text.split()), default=0)
    assert all(len(line) <= max(width, longest) for line in text.split("\n"))
