"""What the sandbox lets a template do, without a process around it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import Any

import pytest
from jinja2 import TemplateError

from skippyd.frontend.chat_template import WORKER_PATH, template_variables
from skippyd.frontend.template_worker import (
    FAILED,
    OUTPUT_CHARACTERS,
    RENDERED,
    TEMPLATE_BYTES,
    RenderError,
    answer,
    render,
)


MESSAGES = [
    {"role": "system", "content": "Be <brief>."},
    {"role": "user", "content": "Hi & bye"},
]


def variables() -> dict[str, Any]:
    return template_variables(MESSAGES, bos_text="<s>", eos_text="</s>")


def frame(template: str) -> bytes:
    return json.dumps({"template": template, "variables": variables()}).encode()


def test_a_template_sees_the_names_it_expects() -> None:
    template = """{{ bos_token }}{% for message in messages %}
[{{ message['role'] }}] {{ message.content | trim }}{{ eos_token }}
{% endfor %}
{% if tools is not none %}no{% endif %}{% if add_generation_prompt %}[assistant]{% endif %}
"""
    assert render(template, variables()) == (
        "<s>[system] Be <brief>.</s>\n[user] Hi & bye</s>\n[assistant]"
    )


def test_lines_of_blocks_alone_leave_no_trace() -> None:
    """trim_blocks and lstrip_blocks, as model authors write for."""
    template = "a\n    {% if true %}\nb\n    {% endif %}\nc"
    assert render(template, {}) == "a\nb\nc"


def test_loops_can_be_left_and_json_is_plain() -> None:
    template = (
        "{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}"
        "{{ {'b': '<é>', 'a': 1} | tojson }}"
    )
    assert render(template, {}) == '1{"b": "<é>", "a": 1}'


def test_marks_for_training_have_no_effect() -> None:
    assert render("a{% generation %}b{% endgeneration %}c", {}) == "abc"


def test_today_is_written_as_asked() -> None:
    assert len(render("{{ strftime_now('%Y-%m-%d') }}", {})) == 10


def test_a_template_may_refuse() -> None:
    with pytest.raises(RenderError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", {})


HOSTILE = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attr filter": "{{ ''|attr('__class__') }}{{ (''|attr('__class__')).mro() }}",
    "format": "{{ '{0.__class__.__mro__}'.format('').upper.__self__.__class__.x() }}",
    "globals": "{{ raise_exception.__globals__['sys'] }}",
    "mutation": "{{ messages.append(1) }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "range": "{% for n in range(10000000) %}{% endfor %}",
    "syntax": "{% if %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "memory error": "{{ [1] * 10 ** 12 }}",
    "division": "{{ 1 // 0 }}",
    "unknown filter": "{{ 1 | nothing }}",
}


@pytest.mark.parametrize("case", list(HOSTILE))
def test_a_hostile_or_broken_template_is_an_answer_not_a_crash(case: str) -> None:
    told = answer(frame(HOSTILE[case]))
    assert told[:1] == FAILED
    assert 1 < len(told) < 5000


def test_sizes_are_bounded() -> None:
    with pytest.raises(RenderError, match="larger than"):
        render("x" * (TEMPLATE_BYTES + 1), {})
    piece = "x" * 1000
    template = "{% for n in range(5000) %}{{ piece }}{% endfor %}"
    assert OUTPUT_CHARACTERS < 5000 * 1000
    with pytest.raises(RenderError, match="wrote more than"):
        render(template, {"piece": piece})


def test_an_undefined_name_fails_only_when_looked_into() -> None:
    assert render("{{ nothing }}", {}) == ""
    with pytest.raises(TemplateError):
        render("{{ nothing.inside }}", {})


@pytest.mark.process
@pytest.mark.slow
def test_the_worker_speaks_frames_and_ends_with_its_input() -> None:
    request = frame("{{ messages[0].content }}é")
    done = subprocess.run(
        [sys.executable, "-I", str(WORKER_PATH)],
        input=struct.pack("<I", len(request)) + request,
        capture_output=True,
        timeout=20,
        check=True,
    )
    text = "Be <brief>.é".encode()
    ready = struct.pack("<I", 1) + RENDERED
    assert done.stdout == ready + struct.pack("<I", len(text) + 1) + RENDERED + text
    assert done.stderr == b""


@pytest.mark.process
@pytest.mark.slow
def test_the_worker_loads_neither_trio_nor_numpy() -> None:
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1], run_name='worker');"
        "print(sorted({'trio', 'numpy', 'skippyd', 'llama_cpp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(WORKER_PATH)],
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert done.stdout == b"[]\n"
