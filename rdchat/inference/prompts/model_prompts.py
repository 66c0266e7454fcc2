"""Makes token ids of conversations with the model's own chat template and tokenizer.

`ModelPrompts` is what a loaded model has. It decides which texts, tools and images a template gets, and marks control
tokens; the child process renders and encodes them. `read_tokenizer` loads mlx-lm's tokenizer in this process, for
decoding, after the child has tried it; the functions below it check that tokenizer against the model.
"""

import rdchat.inference.blas  # before MLX
import rdchat.inference.mlx_lm_fixes  # noqa: F401  before mlx-lm

# isort: split
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from mlx_lm import utils as mlx_lm_utils
from tokenizers import decoders, pre_tokenizers

from rdchat.errors import InvalidSettingError, ModelError, TemplateRefusedError, reason_of
from rdchat.files import read_object
from rdchat.inference.api import (
    PAIRS,
    ChatImage,
    ChatMessage,
    GenerationRequest,
    ImageCap,
    Role,
    ThinkingChoice,
    fit_opening,
    images_of,
    own_markers,
    without_images,
)
from rdchat.inference.calls.marked_forms import CHANNELS, READERS, mistral_end
from rdchat.inference.calls.offered import OfferedTools
from rdchat.inference.prompts.encoding import ControlTokens, Marks
from rdchat.inference.prompts.template_fitting import (
    CALL_MARKERS,
    CHANNEL_MARKERS,
    answers_only,
    fitted,
    marked,
    said,
    texts_of,
    tools_as_text,
    turn_of,
)
from rdchat.inference.prompts.tokenizer_process import (
    MODEL_HINT,
    NO_CODE,
    SAMPLE_CALL,
    TemplateHabits,
    TokenizerProcess,
    Waiting,
    tokenizer_view,
    tool_of,
)

# A longer conversation, in contexts of the model, is not counted to its end.
_MAX_CONTEXTS = 4
# A text that a tokenizer must give back (`check_round_trip`): damaged conversions lose blanks and line ends.
_SAMPLE = "a b\nc"
PADDING = re.compile(r"\[PAD\d+\]")
"""How some vocabularies name ids that only pad the logits."""


class ImageTexts(Protocol):
    """How the images of a conversation stand in a prompt's text."""

    @property
    def placeholder(self) -> str:
        """The text that chat templates write for an image."""

    def is_unseen(self, image: ChatImage) -> bool:
        """Return whether an image failed, so that a line stands for it."""

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
        ids = process.read_tokenizer(folder)
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
        messages = without_images(messages, self.sight.is_unseen) if self.sight else without_images(messages)
        habits = self._habits(waiting)
        if tools and not self.trained_for_tools:
            messages = tools_as_text(messages, tools)
            tools = ""
        elif habits.call == "":
            # The template would leave calls out without an error. A chat without calls and results stays as it is.
            messages = tools_as_text(messages)
        if any(message.answer is not None for message in messages) and habits.drops:
            messages = answers_only(messages)
        chosen = {} if thinking is None else self._thinking_variables(thinking, habits)
        encode = partial(self.process.encode, self._folder, waiting, limit=limit)
        if self.sight and (images := images_of(messages)):
            encode = partial(encode, images=(self.sight.placeholder, self.sight.expanded(images, cap, limit)))
        refusals = list[TemplateRefusedError]()
        for fit in fitted(messages):
            try:
                return self._encode_turns(fit, unfinished, tools, chosen, encode, waiting=waiting)
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
        *,
        waiting: Waiting,
    ) -> list[int]:
        """Return the ids of a conversation in one of the forms of `fitted`.

        A base model gets the plain texts. A model whose template is in Python is rendered here, and only encoded in the
        child. For all others the child renders too: first with the arguments of calls as JSON values, and if that is
        refused, as text.

        Args:
            messages: The conversation.
            unfinished: See `encode`.
            tools: See `encode`; empty where they are text already.
            chosen: The variables of the template that switch thinking.
            encode: `TokenizerProcess.encode`, with the arguments that are the same for all forms.
            waiting: Called before each text, too.
        """
        begun = unfinished or ChatMessage(Role.ASSISTANT, "")
        marks = Marks.for_texts([tools, *texts_of((*messages, begun))])
        mark = partial(self._mark, marks=marks, waiting=waiting)
        encode = partial(encode, marks=marks)
        turns = [turn_of(message, mark, marks.image) for message in messages]
        thought = self._thought_text(mark(begun.thought, ()))
        # What stands behind the conversation: the beginning of the reply.
        text = thought + mark(begun.content, begun.own_control or own_markers(begun.content))
        has_thought = begun.answer is not None
        if not self._tokenizer.has_chat_template:
            # A base model continues the text.
            parts = [turn["content"] for turn in turns] + [text] * bool(text)
            return encode(text="\n\n".join(parts), begins=True)
        given = {"tools": marked(json.loads(tools), mark)} if tools else {}
        if render := _own_renderer(self._tokenizer):
            rendered = str(render(turns, add_generation_prompt=True, tokenize=False, **given))
            return encode(text=fit_opening(rendered, thought + begun.content, has_thought=has_thought) + text)
        variables = {**chosen, **given}
        texts = [said(message, mark, marks.image) for message in messages]
        encode = partial(encode, text=text, texts=texts, variables=variables, has_thought=has_thought)
        # Some templates take the arguments of calls only as text.
        try:
            return encode(turns=turns)
        except TemplateRefusedError:
            if not any(message.tool_calls for message in messages):
                raise
        return encode(turns=[turn_of(message, mark, marks.image, as_text=True) for message in messages])

    def _mark(self, text: str, own: Iterable[int], marks: Marks, waiting: Waiting) -> str:
        """Mark control tokens; a placeholder of an image is text, also where the model wrote it."""
        waiting()
        if self.sight:
            own = [at for at in own if not text.startswith(self.sight.placeholder, at)]
        return self._tokens.mark(text, own, marks)

    def _thought_text(self, thought: str) -> str:
        """Return the thought of a reply that is continued, in the model's own markers; empty for a model without.

        They are those that the template writes, or else the first in its source, or in the vocabulary, which may have
        those of other models too.
        """
        places = (str(self._tokenizer.chat_template), self.control.values())
        named = ((f"{begin}\n", f"\n{end}\n\n") for place in places for begin, end in PAIRS if begin in place)
        written = self._habits().thought or next(named, ())
        return thought.join(written) if thought else ""

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
        return tuple(self._habits().choices)

    @property
    def thinking_default(self) -> ThinkingChoice | None:
        """See `ModelInfo.thinking_default`."""
        return self._habits().default

    @property
    def trained_for_tools(self) -> bool:
        """Whether the chat template has a place for tools, and the model's calls can be read."""
        habits = self._habits()
        if not habits.takes_tools or call_form(habits.call):
            return habits.takes_tools
        # What mlx-lm found in the source or the vocabulary counts where the template does not show another form.
        mark = self._tokenizer.tool_call_start
        return mark is not None and (habits.names_form or not habits.call or mark in habits.call)

    @property
    def tool_markers(self) -> tuple[str, str] | None:
        """See `ModelInfo.tool_markers`."""
        tokenizer = self._tokenizer
        if not self.trained_for_tools:
            return CALL_MARKERS if tokenizer.has_chat_template else None
        if call_form(self._habits().call) == CHANNELS:
            return CHANNEL_MARKERS
        return tokenizer.tool_call_start, tokenizer.tool_call_end

    def _habits(self, waiting: Waiting = lambda: None) -> TemplateHabits:
        """Return what the chat template does; one in Python is not tried, and takes tools and calls."""
        if not self._tokenizer.has_chat_template:
            return TemplateHabits()
        if _own_renderer(self._tokenizer):
            return TemplateHabits(takes_tools=True, call=None)
        return self.process.habits(self._folder, waiting)

    def _thinking_variables(self, thinking: ThinkingChoice, habits: TemplateHabits) -> Mapping[str, Any]:
        """Return the variables of the chat template for a choice; InvalidSettingError if it has no such choice."""
        choices = habits.choices
        if thinking not in choices:
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no setting for thinking {thinking.value}.",
                f"It has: {', '.join(choices)}." if choices else "Leave thinking to the model.",
            )
        return choices[thinking]


@cache
def call_form(written: str | None) -> str:
    """Return the form in which `SAMPLE_CALL` is written, by the name of its reader; empty where none reads it.

    Args:
        written: See `TemplateHabits.call`.
    """
    offered = OfferedTools([tool_of(SAMPLE_CALL.name)])
    # Readers of tags read JSON too, so that of JSON comes first.
    for form in dict.fromkeys(("json_tools", *READERS)):
        begin, end = _markers(form)
        for text in (written or "").split(begin)[1:]:
            inside = text.partition(end)[0] if end else text[: mistral_end(text, offered)]
            # A template may write anything.
            with suppress(Exception):
                (call,) = READERS[form](inside, offered)
                if json.loads(call.arguments) == json.loads(SAMPLE_CALL.arguments):
                    return form
    return ""


def _markers(form: str) -> tuple[str, str]:
    """Return what begins and ends calls of a form."""
    if form == CHANNELS:
        return CHANNEL_MARKERS
    module = import_module(f"mlx_lm.tool_parsers.{form}")
    return module.tool_call_start, module.tool_call_end


def _own_renderer(tokenizer: Any) -> Any:
    """Return mlx-lm's or transformers' Python renderer where there is no template; None where there is one.

    mlx-lm's wrapper keeps its own in `_chat_template`. A tokenizer's class has one where it overrides the method of
    transformers.
    """
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: PLC0415  is loaded by now

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    is_stock = getattr(type(inner), "apply_chat_template", None) is PreTrainedTokenizerBase.apply_chat_template
    in_python = getattr(tokenizer, "_chat_template", None) is not None or not is_stock
    return tokenizer.apply_chat_template if in_python else None


def read_tokenizer(folder: Path, process: TokenizerProcess, waiting: Waiting = lambda: None) -> Any:
    """Read the tokenizer of a model folder, without its weights.

    Args:
        folder: Already checked by `check_model_folder`.
        process: Tests it first.
        waiting: See `ModelPrompts.encode`.

    Raises:
        ModelError: If it cannot be read, or is harmful.
    """
    process.read_tokenizer(folder, waiting, reread=True)
    habits = process.habits(folder, waiting)
    form = call_form(habits.call)
    known = {"tool_parser_type": form} if form not in ("", CHANNELS) else {}
    try:
        with tokenizer_view(folder) as view:
            tokenizer = mlx_lm_utils.load_tokenizer(view, NO_CODE | known, eos_token_ids=_end_tokens(folder))
    except ModelError:
        raise
    except Exception as error:
        # Its files are foreign data: anything can be wrong in them.
        raise ModelError(f"The tokenizer of {folder.name} cannot be read: {reason_of(error)}.", MODEL_HINT) from error
    # A control token that the template writes directly after a reply ends one too.
    if habits.end is not None:
        tokenizer.add_eos_token(str(habits.end))
    return tokenizer


def _end_tokens(folder: Path) -> list[int] | None:
    """Return the ids that end a reply by the model's configuration; None uses the tokenizer's.

    Those of generation_config.json replace those of config.json. Those of the text part come on top.
    """
    config = read_object(folder / "config.json")
    path = folder / "generation_config.json"
    written = read_object(path) if path.exists() else {}
    nested = config.get("text_config")
    ids = _token_ids(written.get("eos_token_id")) or _token_ids(config.get("eos_token_id"))
    ids += _token_ids(nested.get("eos_token_id")) if isinstance(nested, dict) else []
    return ids or None


def _token_ids(setting: object) -> list[int]:
    """Return the token ids in a setting, which is one or a list of them; what else is in it is left out."""
    listed = setting if isinstance(setting, list) else [setting]
    return [token for token in listed if type(token) is int]


def check_token_ids(tokenizer: Any, rows: int, name: str) -> None:
    """Refuse a tokenizer with tokens without an embedding: looking one up would be out of bounds.

    Padding tokens may be beyond, since no text becomes one, and special tokens that the chat template does not write:
    in a message they are plain text. The model may have more rows than there are tokens.

    Raises:
        ModelError: Names the token.
    """
    added = tokenizer.added_tokens_decoder.values()
    template = str(tokenizer.chat_template)
    unused = {each.content for each in added if each.special and each.content not in template}
    unused.add(getattr(tokenizer, "pad_token", None))
    beyond = [
        (token_id, token)
        for token, token_id in tokenizer.get_vocab().items()
        if not 0 <= token_id < rows and token not in unused and not PADDING.fullmatch(token)
    ]
    if beyond:
        token_id, token = min(beyond)
        raise ModelError(
            f"The tokenizer of {name} has a token {token_id:,} ({token[:40]!r}), but the model has {rows:,} rows.",
            "Its tokenizer belongs to another model. Download the model again, or choose another one.",
        )


def check_round_trip(tokenizer: Any, name: str) -> str:
    """Mend a byte-level tokenizer's decoder; return a warning if a text still does not come back as it was.

    transformers 5.3 to 5.8 saved some byte-level tokenizers with SentencePiece's rules, and copies for MLX have them.
    Where only the decoder has them, the right one is put in its place. SentencePiece itself may turn line ends into
    blanks, as in training.

    Raises:
        ModelError: If a byte-level vocabulary has no such rule for texts: its pattern is lost.
    """
    result = _round_trip(tokenizer)
    if result != _SAMPLE and _is_byte_level(tokenizer):
        backend = tokenizer.backend_tokenizer
        rules = (bytes(each.__getstate__()) for each in (backend.normalizer, backend.pre_tokenizer) if each)
        if not any(b'"ByteLevel"' in each for each in rules):
            raise ModelError(
                f"A conversion damaged the tokenizer of {name}: it loses the blanks of each text.",
                "Download another copy of the model, or the tokenizer.json of the original.",
            )
        backend.decoder = decoders.ByteLevel()
        result = _round_trip(tokenizer)
    # A vocabulary without any of the letters is one of other texts, and shows nothing of blanks.
    if result == _SAMPLE or not any(letter in result for letter in "abc"):
        return ""
    return (
        f"The tokenizer of {name} turns {_SAMPLE!r} into {result[:40]!r}. If that of the original model does not, "
        "this copy is damaged: download another one."
    )


def _round_trip(tokenizer: Any) -> str:
    """Return what a tokenizer makes of a text, without the blank that some add before it."""
    ids = tokenizer.encode(_SAMPLE, add_special_tokens=False, verbose=False)
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)).removeprefix(" ")


def _is_byte_level(tokenizer: Any) -> bool:
    """Return whether a vocabulary spells bytes as ByteLevel does, and no blanks as SentencePiece does."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    spelled = backend.get_vocab(with_added_tokens=False)
    return spelled.keys() >= set(pre_tokenizers.ByteLevel.alphabet()) and not any("\u2581" in each for each in spelled)
