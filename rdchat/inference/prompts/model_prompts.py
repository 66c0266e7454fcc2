"""Makes token ids of conversations with the model's own chat template and tokenizer."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rdchat.errors import InvalidSettingError, TemplateRefusedError
from rdchat.inference.api.messages import ChatImage, ChatMessage, ImageCap, Role, images_of, without_images
from rdchat.inference.api.requests import GenerationRequest, ThinkingChoice
from rdchat.inference.prompts.encoding import ControlTokens, Marks
from rdchat.inference.prompts.generic_tools import CALL_MARKERS, CHANNEL_MARKERS, tools_as_text
from rdchat.inference.prompts.template_fitting import answers_only, fitted, marked, said, texts_of, turn_of
from rdchat.inference.prompts.tokenizer_process import TemplateThinking, TokenizerProcess, Waiting
from rdchat.thoughts import PAIRS, fit_opening, own_markers

# Conversations that are longer than so many contexts are not counted to their end.
_MAX_CONTEXTS = 4


class ImageTexts(Protocol):
    """How the images of a conversation stand in a prompt's text."""

    @property
    def placeholder(self) -> str:
        """What chat templates write for an image."""

    def expanded(self, images: Sequence[ChatImage], cap: ImageCap, limit: int) -> list[str]:
        """Return the text of each image."""


class ModelPrompts:
    """Makes token ids of conversations and texts for one model folder. It has no weights.

    Args:
        process: Reads the tokenizer; several models may share one.
        folder: The model's folder.
        tokenizer: mlx-lm's wrapper of the same tokenizer, in this process.
        sight: How the model sees; None for one that does not.

    Attributes:
        control: Id to text of control tokens.
    """

    def __init__(
        self, process: TokenizerProcess, folder: Path, tokenizer: Any, sight: ImageTexts | None = None
    ) -> None:
        self.process = process
        self._folder = folder
        self._tokenizer = tokenizer
        self.sight = sight
        ids = process.read(folder)
        self.control: Mapping[int, str] = {token_id: text for text, token_id in ids.items()}
        self._tokens = ControlTokens(ids)

    def encode(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting = lambda: None,
        *,
        thinking: ThinkingChoice | None = None,
        tools: str = "",
        cap: ImageCap = ImageCap.MEDIUM,
    ) -> list[int]:
        """Return the ids of a conversation, open for a reply.

        Where the template refuses a conversation or leaves out a text, it gets one that is changed to fit (`fitted`).

        Args:
            messages: The chat template is applied to them; base models get plain texts.
            unfinished: The beginning of the reply, unchanged.
            limit: The most tokens that are of use.
            waiting: Called every 20 ms meanwhile; an exception from it ends the work.
            thinking: Whether or how much the model thinks; None leaves it to the chat template.
            tools: JSON list of the tools that the model may call; empty for none. The template gets them if the model
                was trained for tools; otherwise they are text, see `tools_as_text`.
            cap: How many tokens an image may take. Models that do not see get a line for each image.

        Raises:
            InvalidSettingError: If the template has no such switch for thinking.
            TemplateRefusedError: If the template refuses the conversation, or takes too long.
            PromptTooLongError: If it has far more tokens than `limit`; the caller checks the exact limit.
        """
        if self.sight is None:
            messages = without_images(messages)
        if tools and not self.trained_for_tools:
            messages = tools_as_text(messages, tools)
            tools = ""
        elif not self._mentions("tool_calls"):
            # The template would leave calls out without an error.
            messages = tools_as_text(messages)
        if any(message.answer is not None for message in messages) and self._template(waiting).drops:
            messages = answers_only(messages)
        chosen = {} if thinking is None else self._variables(thinking, waiting)
        encode = partial(self.process.encode, self._folder, waiting, limit=limit)
        if self.sight is not None and (images := images_of(messages)):
            encode = partial(encode, images=(self.sight.placeholder, self.sight.expanded(images, cap, limit)))
        refusals = list[TemplateRefusedError]()
        for fit in fitted(messages):
            try:
                return self._encode_turns(fit, unfinished, tools, chosen, encode)
            except TemplateRefusedError as error:
                refusals.append(error)
        raise refusals[0]

    def encode_request(self, request: GenerationRequest, limit: int, waiting: Waiting = lambda: None) -> list[int]:
        """Return the ids of a request's prompt; arguments and errors are those of `encode`.

        Thinking is off for an answer with a shape, where it can be: a thought would come before the shape. A text gets
        no chat template: words in it that look like control tokens are plain text, and the tokens with which the
        tokenizer begins a text are added.
        """
        if request.text is not None:
            marks = Marks.for_texts([request.text])
            plain = self._tokens.mark(request.text, (), marks)
            return self.process.encode(self._folder, waiting, text=plain, marks=marks, limit=limit, begins=True)
        turns = list(request.messages)
        unfinished = None
        if request.continue_last:
            unfinished = turns.pop()
            while turns and turns[-1].can_be_joined(unfinished):
                unfinished = turns.pop().joined(unfinished)
        is_off = request.shape is not None and ThinkingChoice.OFF in self.thinking
        thinking = ThinkingChoice.OFF if is_off else request.thinking
        return self.encode(
            turns, unfinished, limit, waiting, thinking=thinking, tools=request.tools, cap=request.image_cap
        )

    def _encode_turns(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        tools: str,
        chosen: Mapping[str, Any],
        encode: Callable[..., list[int]],
    ) -> list[int]:
        marks = Marks.for_texts([tools, *texts_of((*messages, *([unfinished] if unfinished else [])))])
        mark = partial(self._mark, marks=marks)
        encode = partial(encode, marks=marks)
        turns = [turn_of(message, mark, marks.image) for message in messages]
        begun = unfinished or ChatMessage(Role.ASSISTANT, "")
        thought = self._thought(mark(begun.thought, ()))
        text = thought + mark(begun.content, begun.own_control or own_markers(begun.content))
        has_thought = begun.answer is not None
        if not self._tokenizer.has_chat_template:
            # A base model continues the text.
            parts = [*(turn["content"] for turn in turns), *([text] if text else [])]
            return encode(text="\n\n".join(parts), begins=True)
        given = {"tools": marked(json.loads(tools), mark)} if tools else {}
        if (render := _own_renderer(self._tokenizer)) is not None:
            rendered = str(render(turns, add_generation_prompt=True, tokenize=False, **given))
            return encode(text=fit_opening(rendered, thought + begun.content, has_thought=has_thought) + text)
        variables = {**usual_variables(self._tokenizer), **chosen, **given}
        texts = [said(message, mark, marks.image) for message in messages]
        encode = partial(encode, text=text, texts=texts, variables=variables, has_thought=has_thought)
        try:
            return encode(turns=turns)
        except TemplateRefusedError:
            if not any(message.tool_calls for message in messages):
                raise
        return encode(turns=[turn_of(message, mark, marks.image, as_text=True) for message in messages])

    def _mark(self, text: str, own: Iterable[int], marks: Marks) -> str:
        """Mark control tokens; a placeholder of an image is text, also where the model wrote it."""
        if self.sight is not None:
            own = [at for at in own if not text.startswith(self.sight.placeholder, at)]
        return self._tokens.mark(text, own, marks)

    def _thought(self, thought: str) -> str:
        """Return the thought of a reply that is continued in the model's own markers; empty for a model without."""
        known = self.control.values()
        pair = next((each for each in PAIRS if each[0] in known), None)
        return f"{pair[0]}\n{thought}\n{pair[1]}\n\n" if thought and pair is not None else ""

    def _mentions(self, variable: str) -> bool:
        """Return whether the chat template reads a variable, such as `tools`; one in Python does."""
        if not self._tokenizer.has_chat_template:
            return False
        in_python = _own_renderer(self._tokenizer) is not None
        return in_python or re.search(rf"\b{variable}\b", str(self._tokenizer.chat_template)) is not None

    def count(self, prompt: Sequence[ChatMessage] | GenerationRequest, context_length: int) -> int:
        """Return the number of tokens of a conversation open for a reply; 0 for an empty one. From any thread.

        A request's tools, its thinking and the reply that it continues are counted too.

        Raises:
            PromptTooLongError: If they far exceed the context.
            ModelError: If the chat template refuses the conversation.
        """
        limit = _MAX_CONTEXTS * context_length
        if isinstance(prompt, GenerationRequest):
            return len(self.encode_request(prompt, limit))
        return len(self.encode(prompt, None, limit)) if prompt else 0

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message."""
        return self.process.encode_text(self._folder, text)

    @property
    def thinking(self) -> tuple[ThinkingChoice, ...]:
        """The choices of thinking; empty where the chat template has no switch."""
        return tuple(self._template().choices)

    @property
    def trained_for_tools(self) -> bool:
        """Whether the chat template has a place for tools, and the model's calls can be read."""
        if not self._tokenizer.has_tool_calling and CHANNEL_MARKERS[0] not in str(self._tokenizer.chat_template):
            return False
        return self._mentions("tools")

    @property
    def tool_markers(self) -> tuple[str, str] | None:
        """See `ModelInfo.tool_markers`."""
        if self.trained_for_tools:
            tokenizer = self._tokenizer
            return (
                (tokenizer.tool_call_start, tokenizer.tool_call_end) if tokenizer.has_tool_calling else CHANNEL_MARKERS
            )
        return CALL_MARKERS if self._tokenizer.has_chat_template else None

    def _template(self, waiting: Waiting = lambda: None) -> TemplateThinking:
        if not self._tokenizer.has_chat_template or _own_renderer(self._tokenizer) is not None:
            return TemplateThinking()
        return self.process.thinking(self._folder, usual_variables(self._tokenizer), waiting)

    def _variables(self, thinking: ThinkingChoice, waiting: Waiting) -> Mapping[str, Any]:
        choices = self._template(waiting).choices
        if thinking not in choices:
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no setting for thinking {thinking.value}.",
                f"It has: {', '.join(choices)}." if choices else "Leave thinking to the model.",
            )
        return choices[thinking]


def usual_variables(tokenizer: Any) -> dict[str, Any]:
    """Return the variables that a chat template always gets, as in mlx-lm."""
    return {"enable_thinking": bool(tokenizer.has_thinking)}


def _own_renderer(tokenizer: Any) -> Any:
    """Return mlx-lm's or transformers' Python renderer where there is no template; None where there is one."""
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: PLC0415  is loaded by now

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    stock = getattr(type(inner), "apply_chat_template", None) is PreTrainedTokenizerBase.apply_chat_template
    in_python = getattr(tokenizer, "_chat_template", None) is not None or not stock
    return tokenizer.apply_chat_template if in_python else None
