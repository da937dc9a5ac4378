"""What a whole model answers in one process, without any of our code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from pathlib import Path

ANSWER_SECONDS = 120.0

UNSPLIT = """
import sys, llama_cpp
model = llama_cpp.Llama(sys.argv[1], n_ctx=1024, verbose=False)
answer = model.create_chat_completion(
    [{"role": "user", "content": sys.argv[2]}],
    max_tokens=int(sys.argv[3]),
    temperature=0,
)
sys.stdout.write(answer["choices"][0]["message"]["content"])
"""


def unsplit_answer(model: Path, prompt: str, tokens: int) -> str:
    """Ask the whole model greedily, through llama.cpp's own Python binding."""
    return subprocess.run(
        [sys.executable, "-c", UNSPLIT, model, prompt, str(tokens)],
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=True,
    ).stdout
