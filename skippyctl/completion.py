"""Completion scripts for shells, made from the parsers: they cannot fall behind.

A script is static text: commands, their flags, and the words a flag or a position
allows. Values that are free are left to the shell, which completes file names.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROGRAM = "skippyctl"


@attrs.frozen
class Entry:
    """One command, or an action of one.

    Args:
        path: The words that lead to it.
        summary: What it does.
        flags: Its flags with their help.
        words: What may stand next: actions, or the choices of a position.
    """

    path: tuple[str, ...]
    summary: str
    flags: tuple[tuple[str, str], ...]
    words: tuple[tuple[str, str], ...]


def entries(parser: argparse.ArgumentParser) -> tuple[Entry, ...]:
    """Read the commands out of the parser of the whole program."""
    return tuple(_walk(parser, (), ""))


def script(shell: str, commands: Sequence[Entry]) -> str:
    """The script for bash, zsh or fish."""
    return SHELLS[shell](commands)


def _walk(
    parser: argparse.ArgumentParser, path: tuple[str, ...], summary: str
) -> Iterator[Entry]:
    flags: list[tuple[str, str]] = []
    words: list[tuple[str, str]] = []
    below: list[tuple[str, argparse.ArgumentParser, str]] = []
    for action in parser._actions:  # noqa: SLF001 - argparse offers no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            helps = {each.dest: each.help or "" for each in action._get_subactions()}  # noqa: SLF001
            words += [(name, helps.get(name, "")) for name in action.choices]
            below += [(n, p, helps.get(n, "")) for n, p in action.choices.items()]
        elif action.option_strings:
            longest = max(action.option_strings, key=len)
            flags.append((longest, action.help or ""))
        elif action.choices is not None:
            words += [(str(choice), "") for choice in action.choices]
    yield Entry(path, summary, tuple(flags), tuple(words))
    for name, child, text in below:
        yield from _walk(child, (*path, name), text)


def _bash(commands: Sequence[Entry]) -> str:
    cases = [
        f'    "{" ".join(each.path)}") words="{_candidates(each)}" ;;'
        for each in commands
    ]
    return "\n".join(
        [
            f"# bash completion for {PROGRAM}",
            f"_{PROGRAM}() {{",
            '  local current="${COMP_WORDS[COMP_CWORD]}" path="" words="" word',
            '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f'    case " {_all_paths(commands)} " in',
            '      *" ${path:+$path/}$word "*) path="${path:+$path/}$word" ;;',
            "    esac",
            "  done",
            '  case "${path//\\// }" in',
            *cases,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            f"complete -o default -F _{PROGRAM} {PROGRAM}",
        ]
    )


def _zsh(commands: Sequence[Entry]) -> str:
    cases = [
        f"    '{' '.join(each.path)}') words=({' '.join(_zsh_words(each))}) ;;"
        for each in commands
    ]
    return "\n".join(
        [
            f"#compdef {PROGRAM}",
            f"_{PROGRAM}() {{",
            '  local path_="" word',
            "  local -a words_",
            '  for word in "${words[@]:1:CURRENT-2}"; do',
            f'    case " {_all_paths(commands)} " in',
            '      *" ${path_:+$path_/}$word "*) path_="${path_:+$path_/}$word" ;;',
            "    esac",
            "  done",
            '  case "${path_//\\// }" in',
            *(case.replace("words=(", "words_=(") for case in cases),
            "  esac",
            f"  _describe '{PROGRAM}' words_ || _files",
            "}",
            f"compdef _{PROGRAM} {PROGRAM}",
        ]
    )


def _fish(commands: Sequence[Entry]) -> str:
    lines = [f"# fish completion for {PROGRAM}", f"complete -c {PROGRAM} -f"]
    for each in commands:
        condition = _fish_condition(each)
        for word, text in each.words:
            lines.append(
                f"complete -c {PROGRAM} -n '{condition}' -a {word} -d {_quoted(text)}"
            )
        for flag, text in each.flags:
            lines.append(
                f"complete -c {PROGRAM} -n '{condition}' -l {flag.removeprefix('--')} "
                f"-d {_quoted(text)}"
            )
    return "\n".join(lines)


def _fish_condition(entry: Entry) -> str:
    if not entry.path:
        return "__fish_use_subcommand"
    seen = (f"__fish_seen_subcommand_from {name}" for name in entry.path)
    return "; and ".join(seen)


def _candidates(entry: Entry) -> str:
    return " ".join([name for name, _ in (*entry.words, *entry.flags)])


def _all_paths(commands: Sequence[Entry]) -> str:
    return " ".join("/".join(each.path) for each in commands if each.path)


def _zsh_words(entry: Entry) -> Iterator[str]:
    for name, text in (*entry.words, *entry.flags):
        described = f"{name}:{text}" if text else name
        yield _quoted(described)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''").replace("\n", " ") + "'"


SHELLS: dict[str, Callable[[Sequence[Entry]], str]] = {
    "bash": _bash,
    "fish": _fish,
    "zsh": _zsh,
}
