from __future__ import annotations

import subprocess

import pytest

from skippyctl.completion import entries, script
from skippyctl.main import COMMANDS, main, whole_parser


ENTRIES = entries(whole_parser())


def test_every_command_and_action_is_known_with_its_flags() -> None:
    known = {each.path: each for each in ENTRIES}
    assert {name for name, _ in known[()].words} == COMMANDS.keys()
    assert {name for name, _ in known["fence",].words} == {"show", "init"}
    assert {name for name, _ in known["completion",].words} == {"bash", "zsh", "fish"}
    deploy = {flag for flag, _ in known["deploy",].flags}
    assert {"--context", "--lanes", "--nodes", "--dry-run", "--json"} <= deploy
    assert "--reason" in {flag for flag, _ in known["safe-mode", "on"].flags}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell, ENTRIES) + "\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_word_is_in_every_script(shell: str) -> None:
    text = script(shell, ENTRIES)
    for each in ENTRIES:
        for word, _ in (*each.words, *each.flags):
            shown = f"-l {word[2:]}" if shell == "fish" and word[0] == "-" else word
            assert shown in text


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["sta"], {"status"}),
        (["fence", ""], {"show", "init", "--help"}),
        (["safe-mode", "on", "--rea"], {"--reason"}),
        (["deploy", "model", "--dr"], {"--dry-run"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes(typed: list[str], offered: set[str]) -> None:
    words = " ".join(f"'{word}'" for word in ("skippyctl", *typed))
    asking = (
        f"{script('bash', ENTRIES)}\nCOMP_WORDS=({words})\nCOMP_CWORD={len(typed)}\n"
        '_skippyctl\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", asking],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert set(done.stdout.split()) == offered
