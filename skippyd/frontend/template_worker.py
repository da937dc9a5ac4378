"""The child process that renders chat templates, which are untrusted programs.

Run as a script with an isolated interpreter; it needs jinja2 and the standard
library only.  The sandbox keeps a template from Python's objects, the resource
limits keep it from the machine: nested loops and a string of a gigabyte pass the
sandbox (measured), so memory and CPU time are limited by the kernel.

Frames on the two pipes: u32 little-endian length, then that many bytes.  A request
is a JSON object, an answer one status byte and UTF-8 text.  The first answer says
that the worker is ready.  End of file on standard input ends the process, so it
does not outlive its parent; a render that runs then is ended by its CPU limit.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import struct
import sys
import time
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


if TYPE_CHECKING:
    from typing import BinaryIO, NoReturn

    from jinja2 import Template
    from jinja2.parser import Parser


MEMORY_BYTES = 512 * 2**20
CPU_S = 2
TEMPLATE_BYTES = 256 * 2**10
OUTPUT_CHARACTERS = 4 * 2**20
# Larger than any request body the server takes.
FRAME_BYTES = 32 * 2**20
ERROR_CHARACTERS = 1000

RENDERED = b"\0"
FAILED = b"\1"


class RenderError(Exception):
    """The template failed; the message is for the client."""


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`: training marks, here without effect."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a plain attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Keep what the tag encloses."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def main() -> None:
    """Answer requests until standard input ends."""
    # Ctrl-C goes to the whole group; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_resources()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    _write_frame(sink, RENDERED)
    while (frame := _read_frame(source)) is not None:
        _limit_cpu()
        _write_frame(sink, answer(frame))


def answer(frame: bytes) -> bytes:
    """Render one request.

    Args:
        frame: JSON object with `template` and the template's `variables`.

    Returns:
        A status byte and the text, or what is wrong.
    """
    try:
        request = json.loads(frame)
        text = render(request["template"], request["variables"])
        return RENDERED + text.encode("utf-8")
    except (RenderError, TemplateError) as error:
        return _failure(str(error) or type(error).__name__)
    except MemoryError:
        return _failure("it needs too much memory")
    except RecursionError:
        return _failure("it calls itself too deeply")
    # A template is a program: what it can make Python raise has no list.
    except Exception as error:  # noqa: BLE001
        return _failure(f"{type(error).__name__}: {error}")


def render(template: str, variables: dict[str, Any]) -> str:
    """Render with what model authors expect around their templates.

    Raises:
        RenderError: Too large, or refused by the template itself.
        TemplateError: Wrong syntax, undefined values, sandbox violations.
    """
    if len(template.encode("utf-8")) > TEMPLATE_BYTES:
        raise RenderError(f"it is larger than {TEMPLATE_BYTES} bytes")
    pieces: list[str] = []
    left = OUTPUT_CHARACTERS
    for piece in _compiled(template).generate(variables):
        left -= len(piece)
        if left < 0:
            raise RenderError(f"it wrote more than {OUTPUT_CHARACTERS} characters")
        pieces.append(piece)
    return "".join(pieces)


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, GenerationTag],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(template)


def _to_json(
    value: Any,  # noqa: ANN401 - whatever a template computed
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own escapes < and >, which is meant for HTML.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise RenderError(str(message))


def _strftime_now(pattern: str) -> str:
    # Templates print the date of the machine that serves.
    return datetime.now().strftime(pattern)  # noqa: DTZ005


def _failure(message: str) -> bytes:
    shown = message[:ERROR_CHARACTERS]
    return FAILED + shown.encode("utf-8", "backslashreplace")


def _limit_resources() -> None:
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def _limit_cpu() -> None:
    """Give the next render its CPU seconds; past them the kernel ends us."""
    until_s = math.ceil(time.process_time()) + CPU_S
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (until_s, hard))


def _read_frame(source: BinaryIO) -> bytes | None:
    header = source.read(4)
    if len(header) < 4:  # noqa: PLR2004 - the width of the length above
        return None
    (length,) = struct.unpack("<I", header)
    if length > FRAME_BYTES:
        return None
    frame = source.read(length)
    return frame if len(frame) == length else None


def _write_frame(sink: BinaryIO, data: bytes) -> None:
    sink.write(struct.pack("<I", len(data)) + data)
    sink.flush()


if __name__ == "__main__":
    main()
