"""The template worker process: deadlines, limits, and what follows a kill."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from skippyd.frontend.chat_template import (
    TemplateFailedError,
    WorkerRenderer,
    open_worker_renderer,
    template_variables,
)


pytestmark = [pytest.mark.process, pytest.mark.slow]

ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_one_worker_renders_again_and_again_and_ends_with_its_context() -> None:
    messages = [{"role": "user", "content": "Hé\ufdd0"}]
    async with open_worker_renderer() as renderer:
        pid = renderer.pid
        assert pid is not None
        for _ in range(3):
            text = await renderer.render(
                "{{ bos_token }}{{ messages[0].content }}",
                template_variables(messages, bos_text="<s>", eos_text=""),
            )
            assert text == "<s>Hé\ufdd0"
        assert renderer.pid == pid
    assert not is_alive(pid)


async def test_a_template_that_fails_says_why_and_the_worker_goes_on() -> None:
    async with open_worker_renderer() as renderer:
        pid = renderer.pid
        with pytest.raises(TemplateFailedError, match="no system role, please"):
            await renderer.render("{{ raise_exception('no system role, please') }}", {})
        assert await renderer.render("ok", {}) == "ok"
        assert renderer.pid == pid


async def test_an_endless_template_is_killed_and_the_next_render_works() -> None:
    async with open_worker_renderer() as started:
        pid = started.pid
        assert pid is not None
        with pytest.raises(TemplateFailedError, match="did not end within 2 s"):
            await started.render(ENDLESS, {})
        assert not is_alive(pid)
        assert await started.render("ok", {}) == "ok"


async def test_a_gigabyte_of_text_is_refused_by_the_workers_own_limit() -> None:
    async with open_worker_renderer() as renderer:
        with pytest.raises(TemplateFailedError, match="memory"):
            await renderer.render("{{ 'x' * 10 ** 9 }}", {})
        assert await renderer.render("ok", {}) == "ok"


async def test_the_kernel_ends_a_render_that_nobody_waits_for() -> None:
    renderer = WorkerRenderer(render_s=30)
    await renderer.start()
    try:
        with pytest.raises(TemplateFailedError, match="too much memory or time"):
            await renderer.render(ENDLESS, {})
    finally:
        await renderer.stop()
    assert renderer.pid is None


async def test_a_cancelled_render_leaves_no_answer_behind() -> None:
    async with open_worker_renderer() as renderer:
        with trio.move_on_after(0.1) as scope:
            await renderer.render(ENDLESS, {})
        assert scope.cancelled_caught
        assert await renderer.render("mine", {}) == "mine"


async def test_a_worker_that_was_killed_is_replaced() -> None:
    async with open_worker_renderer() as renderer:
        pid = renderer.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with trio.fail_after(20):
            while True:
                try:
                    text = await renderer.render("ok", {})
                except TemplateFailedError:
                    continue
                break
        assert text == "ok"
        assert renderer.pid != pid


async def test_renders_wait_for_each_other() -> None:
    texts: list[str] = []
    async with open_worker_renderer() as renderer:

        async def render(name: str) -> None:
            texts.append(await renderer.render("{{ name }}", {"name": name}))

        async with trio.open_nursery() as nursery:
            for name in "abcdef":
                nursery.start_soon(render, name)
    assert sorted(texts) == list("abcdef")
