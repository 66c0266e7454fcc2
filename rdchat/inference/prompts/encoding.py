"""Encodes a conversation into token ids, in the child process. No MLX here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rdchat.inference.prompts.control_text import ControlTokens, Marks, is_control

_SLICE_CHARACTERS = 2**18  # longer texts are counted slice by slice first: a tokenizer takes about 1 kB a byte
_MOST_GROWTH, _SMALL_RESULT = 8, 2**22  # a rendered text may be so many times as long as the messages, or this long


class TooLongError(Exception):
    """The text has more tokens than `limit`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} tokens")
        self.limit = limit


class TemplateError(Exception):
    """The chat template refuses the conversation, or makes too much of it."""


@dataclass
class PromptTokenizer:
    """A tokenizer and its control tokens.

    Attributes:
        tokenizer: One of transformers'.
        control: Text to id.
        template: The source of its chat templates.
    """

    tokenizer: Any
    control: dict[str, int] = field(init=False)
    template: str = field(init=False)

    def __post_init__(self) -> None:
        template = self.tokenizer.chat_template
        source = "\0".join(map(str, template.values())) if isinstance(template, dict) else str(template or "")
        self.template = source
        added = self.tokenizer.added_tokens_decoder.items()
        self.control = {
            token.content: int(token_id)
            for token_id, token in added
            if is_control(token.content, bool(token.special), source)
        }
        self._tokens = ControlTokens(self.control)
        self._ids = frozenset(self.control.values())

    def render(self, turns: list[dict[str, str]], variables: dict[str, Any]) -> str:
        """Apply the chat template, open for a reply.

        Raises:
            TemplateError: If it raises, or gives nothing, or far more than it was given.
        """
        given = sum(len(turn["content"]) for turn in turns)
        try:
            text = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **variables)
        except RecursionError as error:
            raise TemplateError("it calls itself without end") from error
        except MemoryError as error:
            raise TemplateError("it takes too much memory") from error
        except Exception as error:  # whatever a template written in Jinja may raise
            raise TemplateError(" ".join(str(error).split())[:300] or type(error).__name__) from error
        if len(text) > max(_MOST_GROWTH * given, _SMALL_RESULT):
            raise TemplateError(f"it makes {len(text):,} characters of {given:,}")
        return str(text)

    def encode(self, text: str, marks: Marks, limit: int, *, begins: bool) -> list[int]:
        """Return the ids of a rendered text, its marked parts as ordinary text.

        Args:
            text: What a template made of marked messages, or a text without any marks.
            marks: Those in it.
            limit: The most tokens that are of use.
            begins: Add the tokens with which the tokenizer begins and ends a text.

        Raises:
            TooLongError: If there are more, where telling so early saves work.
        """
        if len(text) > _SLICE_CHARACTERS:
            self._refuse_excess(marks.drop(text), limit)
        (first, _), *others = self._tokens.split(text, marks)
        ids, end = self._first(first, begins, alone=not others)
        for part, plain in others:
            ids += self._inside(part, self._encode_plainly if plain else self._encode_safely)
        return ids + end

    def _refuse_excess(self, text: str, limit: int) -> None:
        count = 0
        for start in range(0, len(text), _SLICE_CHARACTERS):
            part = text[start : start + _SLICE_CHARACTERS]
            count += len(self._encode(part)) - 8  # a border adds a few
            if count > limit:
                raise TooLongError(limit)

    def _first(self, part: str, begins: bool, *, alone: bool) -> tuple[list[int], list[int]]:
        """Return the first part's ids, and those that end the text where it goes on after it."""
        ids = self._encode_safely(part)
        if not begins:
            return ids, []
        whole: list[int] = list(self.tokenizer.encode(part))
        if alone:
            return whole, []
        start = next((at for at in range(len(whole)) if whole[at : at + len(ids)] == ids), 0)
        return whole[: start + len(ids)], whole[start + len(ids) :]

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _encode_safely(self, text: str) -> list[int]:
        """Encode what the template wrote, and unmarked text of messages.

        Normalisers can make control tokens of text that spells none, of other cases or widths: such parts of it are
        encoded as ordinary text.
        """
        ids = self._encode(text)
        if sum(token_id in self._ids for token_id in ids) <= self._tokens.count(text):
            return ids
        coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        pairs = zip(coded["input_ids"], coded["offset_mapping"], strict=True)
        made = [span for token, span in pairs if token in self._ids and text[slice(*span)].strip() not in self.control]
        ids, done = [], 0
        for start, end in made:
            ids += self._inside(text[done:start], self._encode) + self._inside(text[start:end], self._encode_plainly)
            done = end
        return ids + self._inside(text[done:], self._encode)

    def _inside(self, part: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Encode a part of a text that does not begin it: behind a line's end no tokenizer adds a space."""
        if not part:
            return []
        line_end, ids = encode("\n"), encode("\n" + part)
        return ids[len(line_end) :] if ids[: len(line_end)] == line_end else encode(part)

    def _encode_plainly(self, text: str) -> list[int]:
        """Encode text without matching any added token in it; cut into characters where its pieces make one."""
        ids = self._without_added(text)
        if self._ids.isdisjoint(ids):
            return ids
        return [token_id for character in text for token_id in self._without_added(character)]

    def _without_added(self, text: str) -> list[int]:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:  # a tokenizer in Python
            return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [text]
        if backend.pre_tokenizer is not None:
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in words for token in backend.model.tokenize(word)]
