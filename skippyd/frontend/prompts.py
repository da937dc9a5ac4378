"""A request's text to prompt tokens, with users' control texts kept as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.core.generation.prompt_spans import ControlTexts, choose_mark
from skippyd.core.openai.errors import ApiRefusedError, invalid_value
from skippyd.frontend.chat_template import TemplateFailedError, template_variables


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.openai.messages import Message
    from skippyd.frontend.backend import VocabularyOwner
    from skippyd.frontend.chat_template import TemplateRenderer


@attrs.define
class PromptMaker:
    """Makes the prompts of one model; long work is done in threads.

    The vocabulary is looked at with the first request, not before: it belongs to
    a model that may still be loading when the server starts.
    """

    _backend: VocabularyOwner
    _renderer: TemplateRenderer
    _controls: ControlTexts | None = attrs.field(default=None, init=False)

    async def completion_tokens(self, prompt: str) -> tuple[int, ...]:
        """Tokens of a completion's prompt.

        The caller wrote all of it, so control texts in it are tokens.

        Raises:
            ApiRefusedError: It has no tokens.
        """
        return _some(await trio.to_thread.run_sync(self._tokenize_prompt, prompt))

    async def chat_tokens(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens of a chat, rendered with the model's own template.

        Raises:
            ApiRefusedError: No template, or the template refuses the messages.
        """
        vocabulary = self._backend.vocabulary
        template = vocabulary.chat_template
        if template is None:
            raise ApiRefusedError(
                invalid_value(
                    "the model has no chat template; use /v1/completions", "messages"
                )
            )
        marked, mark = await trio.to_thread.run_sync(self._marked, messages)
        variables = template_variables(
            marked, bos_text=vocabulary.bos_text, eos_text=vocabulary.eos_text
        )
        try:
            rendered = await self._renderer.render(template, variables)
        except TemplateFailedError as error:
            raise ApiRefusedError(invalid_value(str(error), "messages")) from error
        return _some(await trio.to_thread.run_sync(self._tokenize_chat, rendered, mark))

    def _control_texts(self) -> ControlTexts:
        if self._controls is None:
            self._controls = ControlTexts.of(self._backend.vocabulary.control_texts)
        return self._controls

    def _marked(self, messages: Sequence[Message]) -> tuple[list[dict[str, str]], str]:
        mark = choose_mark(message.content for message in messages)
        if mark is None:
            raise ApiRefusedError(
                invalid_value(
                    "the messages use every noncharacter U+FDD0 to U+FDEF; "
                    "leave one of them out",
                    "messages",
                )
            )
        controls = self._control_texts()
        marked = [
            {
                "role": message.role,
                "content": controls.mark_controls(message.content, mark),
            }
            for message in messages
        ]
        return marked, mark

    def _tokenize_prompt(self, prompt: str) -> list[int]:
        vocabulary = self._backend.vocabulary
        return vocabulary.tokenize(prompt, add_special=True, parse_special=True)

    def _tokenize_chat(self, rendered: str, mark: str) -> list[int]:
        vocabulary = self._backend.vocabulary
        bos_text = vocabulary.bos_text
        if vocabulary.add_bos and not rendered.startswith(bos_text):
            # Most templates write it themselves; twice would change the answer.
            rendered = bos_text + rendered
        tokens: list[int] = []
        for span in self._control_texts().prompt_spans(rendered, mark):
            tokens += vocabulary.tokenize(
                span.text, add_special=False, parse_special=span.has_controls
            )
        return tokens


def _some(tokens: list[int]) -> tuple[int, ...]:
    if not tokens:
        raise ApiRefusedError(invalid_value("the prompt has no tokens; give some text"))
    return tuple(tokens)
