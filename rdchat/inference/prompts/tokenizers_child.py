"""The child process that reads tokenizers and renders chat templates: `rdchat --child tokenizers`.

It serves `TokenizerProcess` and stores nothing of the person's texts. It also finds out how a chat template treats
thoughts, how it switches them on or off, how it writes tools and calls, and how it ends a reply, by rendering it with
words that no template has. A template is judged by what it renders: its source may build a mark of pieces.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, RdchatError, TemplateRefusedError, reason_of
from rdchat.inference.api import PAIRS, AnswerShape, ChatMessage, Role, ShapeKind, end_of_begun, fit_opening, openings
from rdchat.inference.prompts.encoding import Marks, PromptTokenizer, filled
from rdchat.inference.prompts.template_fitting import THOUGHT_FIELDS, turn_of
from rdchat.inference.prompts.tokenizer_process import MODEL_HINT, NO_CODE, SAMPLE_CALL, tokenizer_view, tool_of
from rdchat.work import Job, serve

Render = Callable[[list[dict[str, Any]], dict[str, Any]], str]

# Words that no template contains.
_THOUGHT = "qzthoughtqz"
_ANSWER = "qzanswerqz"
_QUESTION = {"role": "user", "content": "qzquestionqz"}
# Replies with thoughts in their text: one with all pairs of markers, and one of gpt-oss.
_WITH_THOUGHTS = (
    "".join(f"{opening}\n{_THOUGHT}\n{closing}\n\n" for opening, closing in PAIRS) + _ANSWER,
    f"<|channel|>analysis<|message|>{_THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{_ANSWER}",
)
_TOOL = "qztoolqz"
_TOOLS = [tool_of(_TOOL)]
# Ids of calls: of nine letters, as Mistral's templates want them, and with the tool's name, as Kimi K2's write it.
_CALL_IDS = ("qzcall123", f"functions.{SAMPLE_CALL.name}:0")
_THOUGHTS = dict.fromkeys(THOUGHT_FIELDS, _THOUGHT)
# Variables of templates that switch thinking, with the values for on and off.
_SWITCHES: tuple[tuple[str, Any, Any], ...] = (
    ("enable_thinking", True, False),  # Qwen3, GLM, SmolLM3, Gemma 4 and most others
    ("thinking", True, False),  # DeepSeek V3.1, Granite
    ("thinking_mode", "enabled", "disabled"),  # MiniMax M3
)
# Variables that say how much the model thinks: gpt-oss's and Solar Open's, then Kimi K3's.
_EFFORTS = ("reasoning_effort", "thinking_effort")
# Levels that render like an earlier one are left out.
_LEVELS = ("low", "high", "medium")
# Limit of decoded characters for each character in the vocabulary; byte-level tokenizers give at most one.
_MAX_DECODED = 64
_DECODED_AT_ONCE = 4096
# How many tokenizers are kept: for a target and its draft model, and for the models before.
_MAX_HELD = 4
# Limit of tokens that a tokenizer adds to a text by itself. Most add none to two.
_MAX_ADDED = 64
_CHECKS = ("a", "a b\nc", " a ,b", "Hello, world!\n\n 123 \u00e9\u6f22\U0001f600")


def drops_thoughts(render: Render, chosen: Sequence[dict[str, Any]]) -> bool:
    """Return whether a template removes the thoughts of earlier replies, or refuses them in the text.

    Args:
        render: Applies the template to turns, with variables.
        chosen: The variables of each choice of thinking.
    """
    reply = {"role": "assistant", "content": _ANSWER}

    def leaves_out(**changed: str) -> bool | None:
        """Return whether a thought of a reply is missing in the prompt; None where the reply itself is refused."""
        text = _rendered(render, [_QUESTION, reply | changed, _QUESTION])
        return None if text is None else text.count(_THOUGHT) < str(changed).count(_THOUGHT)

    for written in _WITH_THOUGHTS:
        # Where the template refuses the reply with the thought, and takes the answer alone, the thought is the reason.
        is_left_out = leaves_out(content=written)
        if is_left_out or (is_left_out is None and leaves_out() is not None):
            return True
    last = [_QUESTION, reply | _THOUGHTS]
    texts = [_rendered(render, last, {"add_generation_prompt": False, **variables}) for variables in ({}, *chosen)]
    return any(text and _THOUGHT in text for text in texts) and _THOUGHT not in (
        _rendered(render, [*last, _QUESTION]) or _THOUGHT
    )


def choices(render: Render) -> dict[str, dict[str, Any]]:
    """Return the variables that switch thinking, by the values of `ThinkingChoice`.

    A template without a switch has none. A variable counts where the template renders its values differently.
    """
    variants: dict[str, dict[str, Any]] = {}
    for name, on, off in _SWITCHES:
        texts = [_rendered(render, [_QUESTION], {name: value}) for value in (on, off)]
        if not variants and None not in texts and texts[0] != texts[1]:
            variants |= {"on": {name: on}, "off": {name: off}}
    for name in _EFFORTS:
        # By the prompt, the first level that gives it; None for levels that are refused.
        levels = {_rendered(render, [_QUESTION], {name: level}): level for level in reversed(_LEVELS)}
        levels.pop(None, None)
        if len(levels) > 1:
            variants |= {level: {name: level} for level in levels.values()}
            break
    return variants


def written_thought(render: Render) -> Sequence[str]:
    """Return what a template writes before a reply's thought, and between it and the answer; empty without both."""
    reply = {"role": "assistant", "content": _ANSWER} | _THOUGHTS
    text = _rendered(render, [_QUESTION, reply], {"add_generation_prompt": False}) or ""
    before, _, after = text.partition(_THOUGHT)
    between = after.partition(_ANSWER)[0]
    for opening in openings():
        start = before[before.rfind(opening.marker) :]
        if start.rstrip() == opening.marker and opening.end in between:
            return start, between
    return ()


def written_call(render: Render) -> str | None:
    """Return a chat with `SAMPLE_CALL` as a template writes it.

    Empty where it leaves out the call; None where it refuses the chat.
    """
    written = None
    result = ChatMessage(Role.TOOL, _ANSWER, tool_call_id=_CALL_IDS[0], name=SAMPLE_CALL.name)
    for call_id, as_text, results in product(_CALL_IDS, (False, True), ((), (result,))):
        call = ChatMessage(Role.ASSISTANT, "", tool_calls=(replace(SAMPLE_CALL, call_id=call_id),))
        turns = [turn_of(each, lambda text, _: text, "", as_text=as_text) for each in (call, *results)]
        text = _rendered(render, [_QUESTION, *turns], {"tools": _TOOLS})
        if text is not None:
            written = ""
            if SAMPLE_CALL.name in text:
                return text
    return written


def reply_end(render: Render, control: dict[str, int]) -> int | None:
    """Return the id of the control token that a template writes directly after a reply; None where it writes text.

    Blanks may stand between. A token that the template also writes between a thought and its answer ends no reply.

    Args:
        render: Applies the template to turns, with variables.
        control: Text and id of control tokens.
    """
    reply = {"role": "assistant", "content": _ANSWER} | _THOUGHTS
    for turns in ([_QUESTION, reply], [_QUESTION, reply, _QUESTION]):
        text = _rendered(render, turns, {"add_generation_prompt": False}) or ""
        before, _, after = text.rpartition(_ANSWER)
        written = max((each for each in control if after.lstrip().startswith(each)), key=len, default="")
        if written:
            return None if written in before.partition(_THOUGHT)[2] else control[written]
    return None


def _rendered(render: Render, turns: list[dict[str, Any]], variables: Mapping[str, Any] = {}) -> str | None:
    """Return a prompt; None where the template refuses the messages."""
    try:
        return render(turns, dict(variables))
    except TemplateRefusedError:
        return None


class TokenizerCalls:
    """The requests that the parent sends.

    Attributes:
        tokenizers: The tokenizers that were read last, by folder, the latest last.
    """

    def __init__(self) -> None:
        self.tokenizers: dict[str, PromptTokenizer] = {}

    def call(self, do: str) -> Callable[..., dict[str, Any]]:
        """Return the function that answers a request; a folder that was not read is the answer `unread`."""

        def answer(_job: Job[Any], *, folder: str, **arguments: Any) -> dict[str, Any]:
            if do != "read_tokenizer" and folder not in self.tokenizers:
                return {"unread": True}
            what = f"The {'tokenizer' if do == 'read_tokenizer' else 'chat template'} of {Path(folder).name}"
            try:
                result: dict[str, Any] = getattr(self, do)(folder=folder, **arguments)
                return result
            except RdchatError:
                raise
            except MemoryError as error:
                raise ModelError(f"{what} took too much memory.", MODEL_HINT) from error
            except Exception as error:
                # Tokenizer files are foreign data: anything can be wrong in them.
                raise ModelError(f"{what} cannot be used: {reason_of(error)}.", MODEL_HINT) from error

        return answer

    def read_tokenizer(self, *, folder: str, reread: bool) -> dict[str, Any]:
        """Read a model folder's tokenizer and test it, unless that is done; `reread` does it again."""
        if not reread and folder in self.tokenizers:
            return {"control": self.tokenizers[folder].control}
        # One that cannot be read any more is not kept.
        self.tokenizers.pop(folder, None)
        while len(self.tokenizers) >= _MAX_HELD:
            del self.tokenizers[next(iter(self.tokenizers))]
        from transformers import AutoTokenizer  # noqa: PLC0415  imported by now

        with tokenizer_view(Path(folder)) as view:
            if "NewlineTokenizer" in (view / "tokenizer_config.json").read_text(encoding="utf-8"):
                import mlx_lm.tokenizer_utils  # noqa: F401, PLC0415  the one tokenizer class that is mlx-lm's own
            tokenizer = AutoTokenizer.from_pretrained(view, **NO_CODE)
        _try_out(tokenizer)
        made = PromptTokenizer(tokenizer)
        self.tokenizers[folder] = made
        return {"control": made.control}

    def habits(self, *, folder: str) -> dict[str, Any]:
        """Return what a folder's chat template does, by the fields of `TemplateHabits`."""
        tokenizer = self.tokenizers[folder]
        marks = Marks.for_texts(())

        def render(turns: list[dict[str, Any]], variables: dict[str, Any]) -> str:
            """Render messages as texts or as parts, whichever the template takes."""
            texts = [_ANSWER if _ANSWER in turn["content"] else turn["content"] for turn in turns]
            return tokenizer.render_complete(turns, variables, texts, marks)

        offered = choices(render)
        usual = _rendered(render, [_QUESTION])
        defaults = (choice for choice, each in offered.items() if _rendered(render, [_QUESTION], each) == usual)
        return {
            "drops": drops_thoughts(render, [*offered.values()]),
            "thought": written_thought(render),
            "choices": offered,
            "default": next(defaults, None),
            "takes_tools": _TOOL in (_rendered(render, [_QUESTION], {"tools": _TOOLS}) or ""),
            "call": written_call(tokenizer.render),
            "names_form": "tool_parser_type" in tokenizer.tokenizer.init_kwargs,
            "end": reply_end(render, tokenizer.control),
        }

    def encode(
        self,
        *,
        folder: str,
        text: str,
        marks: tuple[str, str],
        limit: int,
        turns: list[dict[str, Any]] | None = None,
        texts: Sequence[str] = (),
        variables: dict[str, Any] | None = None,
        begins: bool = False,
        has_thought: bool = False,
        images: tuple[str, Sequence[str]] = ("", ()),
    ) -> dict[str, Any]:
        """Return the token ids of a conversation; see `PromptTokenizer`.

        Args:
            folder: The model's folder.
            text: The text behind the conversation; with `turns`, the beginning of the reply.
            marks: The two characters around what looks like a control token in the texts, but is text (`Marks`).
            limit: The most tokens that are of use.
            turns: The messages for the chat template; None for a text alone.
            texts: The text of each message that the prompt must have.
            variables: What else the template gets.
            begins: Whether to add the tokens with which the tokenizer begins and ends a text.
            has_thought: Whether the beginning of the reply is known to have a thought.
            images: What the template writes for an image, and the text of each.
        """
        tokenizer = self.tokenizers[folder]
        both = Marks(*marks)
        rendered = "" if turns is None else tokenizer.render_complete(turns, variables or {}, texts, both)
        if images[1]:
            rendered = filled(rendered, *images, both.before)
        rendered = fit_opening(rendered, both.removed(text), has_thought=has_thought)
        if not has_thought and (closing := end_of_begun(rendered)):
            # The text ends the thought that the template opened: without its marks, the end of the thought is encoded
            # as the control token again.
            text = text.replace(f"{both.before}{closing}{both.after}", closing, 1)
        return {"ids": tokenizer.encode(rendered + text, both, limit, begins=begins)}


def _try_out(tokenizer: Any) -> None:
    """Do what the engine does with a tokenizer, so that a harmful vocabulary or decoder fails here.

    Raises:
        ValueError: If the tokenizer would harm the process that shows its text.
    """
    for text in _CHECKS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        tokenizer.decode(ids)
        if (added := len(tokenizer.encode(text)) - len(ids)) > _MAX_ADDED:
            raise ValueError(f"it adds {added:,} tokens to each text")
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None and '"Regex"' in bytes(decoder.__getstate__()).decode():
        raise ValueError("its decoder uses a search pattern, which may never end")
    spelled = tokenizer.get_vocab()
    ids = sorted(spelled.values())
    allowed = _MAX_DECODED * sum(map(len, spelled))
    decoded = 0
    for start in range(0, len(ids), _DECODED_AT_ONCE):
        decoded += len(tokenizer.decode(ids[start : start + _DECODED_AT_ONCE], skip_special_tokens=False))
        if decoded > allowed:
            raise ValueError(f"its {len(ids):,} tokens decode to {decoded:,} characters")


def _check_shape(_job: Job[Any], *, kind: str, source: str) -> dict[str, Any]:
    from rdchat.inference.prompts.shape_grammar import check_grammar  # noqa: PLC0415  llguidance: seldom needed

    check_grammar(AnswerShape(ShapeKind(kind), source))
    return {}


def _check_answer(_job: Job[Any], *, answer: str, schemas: str) -> dict[str, Any]:
    from rdchat.json_schema import reject_unfit  # noqa: PLC0415  seldom needed

    reject_unfit(answer, schemas)
    return {}


def _settings(_job: Job[Any], *, config: dict[str, Any]) -> dict[str, Any]:
    from rdchat.inference.mlx_lm_fixes.config_fixes import class_settings  # noqa: PLC0415  once a model

    return {"parts": class_settings(config)}


def _import_transformers() -> None:
    import rdchat.inference.mlx_lm_fixes  # noqa: F401, PLC0415  takes a second, while the parent reads weights


def main() -> int:
    """Answer requests until the parent ends."""
    # The libraries read these when they are imported.
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    calls = TokenizerCalls()
    answers = {do: calls.call(do) for do in ("read_tokenizer", "habits", "encode")}
    answers |= {"shape": _check_shape, "answer": _check_answer, "settings": _settings}
    return serve(answers, prepare=_import_transformers)
