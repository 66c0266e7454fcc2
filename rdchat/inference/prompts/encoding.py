"""Makes the token ids of a prompt from messages, so that no text of a message is lost or becomes a control token.

Chat templates join messages and control tokens into one string, in which a typed `<|im_end|>` looks like the template's
own. So control tokens in a message are put between two private-use characters, the marks, before the template sees it;
the text between them is encoded as ordinary text afterwards. (transformers' `sanitize_control_tokens` works similarly.
Here tokens that the model itself wrote stay tokens, and no character of a message is dropped.) With « and » as marks, a
person's `End with <|im_end|>` becomes `End with «<|im_end|>»`.

A template may also leave out a text, or print a list of parts. `render_complete` looks for each text in the result
(`lacking`), and tries other forms of the messages before it refuses.

`PromptTokenizer` does the work, in the child for tokenizers; the app marks texts (`Marks`, `ControlTokens`) and sends
them there. A turn is a message as chat templates take it; its part is a text or an image. No MLX here.
"""

import json
import re
from bisect import bisect
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from rdchat.errors import InvalidSettingError, PromptTooLongError, TemplateRefusedError, reason_of

Turns = list[dict[str, Any]]
LENGTH_HINT = "Shorten the prompt, start a new chat, or choose a model with a longer context."
_TEMPLATE_HINT = "Choose an instruction-tuned model, or start a new chat."
# Characters that may be marks.
_PRIVATE_USE = range(0xF0000, 0xFFFFD)
_REASONS = {RecursionError: "it calls itself for ever", MemoryError: "it takes too much memory"}
# Such as <think> or [INST], but no word, digit or space.
_LOOKS_LIKE_CONTROL = re.compile(r"\W.+\W", re.DOTALL)
# Characters of a text by which most that are no control token are passed over.
_LOOKED_AT = 4
# Longer texts are first counted in slices: a tokenizer takes about 1 kB a byte.
_SLICE_CHARACTERS = 2**18
# Limits of a rendered text: as a multiple of the messages' length, or this length.
_MAX_GROWTH = 8
_SMALL_RESULT = 2**22
# What a template writes that prints a list of parts as it is: a character that no text should have (`_Part`).
_PRINTED = "\U000ffffe"
# The roles whose messages are lists of parts, as they are tried in turn.
_LISTED = (
    (),
    ("system", "user", "assistant", "tool"),
    ("user", "tool"),
    ("system", "user", "tool"),
    ("user", "assistant", "tool"),
)


def lacking(prompt: str, turns: Sequence[dict[str, Any]], texts: Sequence[str], mark: str) -> str:
    """Return the role of the first message whose text or call is missing in a prompt; empty if all are there.

    Each is looked for behind the one before. A system message may stand elsewhere, so it is looked for behind the last
    system message; and the values of a call may have any order.

    Args:
        prompt: The rendered text.
        turns: The messages that the chat template got.
        texts: The text of each message that the prompt must have, with two marks for each image.
        mark: What stands before a control token in a text.
    """
    # Where the last one ended, of system messages and of others.
    ends = {True: 0, False: 0}
    for turn, text in zip(turns, texts, strict=True):
        is_system = turn["role"] == "system"
        # Images divide a text. What stands in one group may have any order in the prompt.
        groups = [[piece] for piece in text.split(mark * 2)]
        groups += [_leaves(call["function"]) for call in turn.get("tool_calls", ())]
        for values in groups:
            results = [_end_of(value, prompt, ends[is_system], mark) for value in values]
            if -1 in results:
                return str(turn["role"])
            ends[is_system] = max(results)
    return ""


def _leaves(value: Any) -> list[Any]:
    """Return the values of a JSON value that are neither objects nor arrays: `1` and `2` of `{"a": [1, 2]}`."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, list) else [value]


def _end_of(value: Any, prompt: str, start: int, mark: str) -> int:
    """Return where a value ends that begins behind `start`, written as in JSON or Python; -1 if it is not there."""
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if (at := prompt.find(text, start)) >= 0:
        return at + len(text)
    spellings = [json.dumps(text, ensure_ascii=False)[1:-1]]
    if mark not in text:
        # With a control token in the text, these would spell the marks around it in other characters.
        spellings += [json.dumps(text)[1:-1], repr(text)[1:-1], str(value)]
    return next((at + len(each) for each in spellings if (at := prompt.find(each, start)) >= 0), -1)


def is_control(text: str, special: bool, template: str) -> bool:
    """Return whether an added token is a control token.

    Special tokens are, and those in brackets that the chat template writes. Others, such as Gemma's `<table>` or runs
    of spaces, are ordinary parts of a text.
    """
    return bool(text.strip()) and (special or (text in template and bool(_LOOKS_LIKE_CONTROL.fullmatch(text))))


class Marks(NamedTuple):
    """Two characters that do not occur in the texts that they mark."""

    before: str
    after: str

    def removed(self, text: str) -> str:
        """Return a text without the marks."""
        return text.replace(self.before, "").replace(self.after, "")

    @property
    def image(self) -> str:
        """The characters for an image in a message's text. In prompts, a token between two marks stands for it."""
        return self.before * 2

    @classmethod
    def for_texts(cls, texts: Sequence[str]) -> "Marks":
        """Return two private-use characters that occur in none of the texts.

        Raises:
            InvalidSettingError: If the texts have nearly all of them.
        """
        used = set[str]().union(*texts)
        free = (character for character in map(chr, _PRIVATE_USE) if character not in used)
        before = next(free, "")
        after = next(free, "")
        if not after:
            raise InvalidSettingError("The chat has nearly every private-use character of Unicode.")
        return cls(before, after)


class ControlTokens:
    """The control tokens of one tokenizer, by their text.

    They are looked up, since a pattern of thousands that begin alike tries each of them, while no other thread runs.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        # In order, so that a text comes behind those that it begins with.
        self._sorted = sorted({"", *texts})
        # By text: the longest other that it begins with.
        self._shorter: dict[str, str] = {}
        begun = ""
        for text in self._sorted[1:]:
            while not text.startswith(begun):
                begun = self._shorter[begun]
            self._shorter[text] = begun
            begun = text
        self._longest = max(map(len, self._sorted))
        # Where a token may begin, by its first characters, each for itself. The second pattern matches nothing.
        columns = islice(zip(*self._shorter, strict=False), _LOOKED_AT)
        first, *others = [f"[{re.escape(''.join({*column}))}]" for column in columns] or ["(?!)"]
        self._likely = re.compile(f"{first}(?={''.join(others)})")

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each token in a text begins and ends; of those that begin at one place, the longest."""
        end = 0
        for match in self._likely.finditer(text):
            start = match.start()
            if start < end:
                continue
            rest = text[start : start + self._longest]
            token = self._sorted[bisect(self._sorted, rest) - 1]
            while not rest.startswith(token):
                token = self._shorter[token]
            if token:
                end = start + len(token)
                yield start, end

    def mark(self, text: str, own: Iterable[int], marks: Marks) -> str:
        """Mark every control token, except those at the offsets `own`, which the model wrote as tokens."""
        own_offsets = frozenset(own)
        pieces = list[str]()
        done = 0
        for start, end in self._found(text):
            if start not in own_offsets:
                pieces += text[done:start], marks.before, text[start:end], marks.after
                done = end
        return "".join([*pieces, text[done:]])

    def count(self, text: str) -> int:
        """Return the number of control tokens spelled in a text."""
        return sum(1 for _ in self._found(text))

    def split(self, text: str, marks: Marks) -> list[tuple[str, bool]]:
        """Split a rendered text into parts, each with True if it was marked as ordinary text.

        A template may have cut between a token and its marks. A mark that stands alone is dropped, but still splits the
        text, so that the text on its two sides does not become a token. The first part is not marked, and may be empty.
        """
        before = re.escape(marks.before)
        after = re.escape(marks.after)
        # Every second piece is what the group matched, or None at a mark that stands alone.
        pieces = re.split(f"{before}([^{before}{after}]+){after}|[{before}{after}]", text)
        parts = [(piece, index % 2 == 1 and piece in self._shorter) for index, piece in enumerate(pieces)]
        return [parts[0], *(part for part in parts[1:] if part[0])]


class PromptTokenizer:
    """A tokenizer and its control tokens.

    Args:
        tokenizer: One of transformers'.

    Attributes:
        control: Text and id of control tokens.
        template: The source of its chat templates.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        template = tokenizer.chat_template
        self.template = "\0".join(map(str, template.values())) if isinstance(template, dict) else str(template or "")
        self.control: dict[str, int] = {
            token.content: int(token_id)
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if is_control(token.content, bool(token.special), self.template)
        }
        self._tokens = ControlTokens(self.control)
        self._ids = frozenset(self.control.values())

    def render(self, turns: Turns, variables: dict[str, Any]) -> str:
        """Apply the chat template, with a reply opened at the end unless `add_generation_prompt` is false.

        Args:
            turns: The messages, each with `role` and `content`.
            variables: What else the template gets, such as `tools`.

        Raises:
            TemplateRefusedError: If it fails, or its text is far too long.
        """
        given = json.dumps([turns, variables], ensure_ascii=False, default=dict)
        try:
            variables = {"add_generation_prompt": True} | variables
            text = self.tokenizer.apply_chat_template(turns, tokenize=False, **variables)
        except Exception as error:
            raise _refusal(_REASONS.get(type(error)) or reason_of(error)) from error
        if len(text) > max(_MAX_GROWTH * len(given), _SMALL_RESULT):
            raise _refusal(f"it made {len(text):,} characters from {len(given):,}")
        if text.count(_PRINTED) > given.count(_PRINTED):
            raise _refusal("it writes a list where the text of a message should stand")
        return str(text)

    def render_complete(self, turns: Turns, variables: dict[str, Any], texts: Sequence[str], marks: Marks) -> str:
        """Apply the chat template so that the prompt has all texts and calls of the messages.

        Most templates take the content of a message as a text; with images it is a list of parts. These forms are tried
        in order, until a prompt has all texts:
        - Without images, the messages as they are.
        - Messages with images as lists, others as texts; then all messages as lists, and those of some roles, as
          templates of models that see want them. Each form is rendered twice. With stand-ins for the texts, which no
          template splits or changes, it shows whether the template has a place for each; if not, the next form is
          tried. Without them it gives the prompt that the model was trained on; only where that loses a text, the
          stand-ins' prompt is taken, with their texts put back.

        Args:
            turns: The messages, each with `role` and `content`, where marks stand for images.
            variables: What else the template gets, such as `tools`.
            texts: The text of each message that the prompt must have, without blanks at its ends.
            marks: The marks in the texts.

        Raises:
            TemplateRefusedError: If the template fails, or leaves out a text, a call's name or one of its values.
        """
        refusals = list[TemplateRefusedError]()
        if not any(marks.image in turn["content"] for turn in turns):
            try:
                prompt = self.render(turns, variables)
                if not (role := lacking(prompt, turns, texts, marks.before)):
                    return prompt
                refusals.append(_refusal(f"it leaves out a message with the role {role}, or a part of it"))
            except TemplateRefusedError as error:
                refusals.append(error)
        hidden, hidden_texts = _hidden(turns, texts, marks)
        for roles in _LISTED:
            in_parts = partial(_in_parts, image=marks.image, roles=roles)
            try:
                from_hidden = self._render_hidden(in_parts(hidden), variables, hidden_texts, marks)
                prompt = self.render(in_parts(turns), variables)
                return from_hidden if lacking(prompt, turns, texts, marks.before) else prompt
            except TemplateRefusedError as error:
                refusals.append(error)
        raise refusals[0]

    def _render_hidden(self, hidden: Turns, variables: dict[str, Any], texts: Sequence[str], marks: Marks) -> str:
        """Apply the chat template to messages with stand-ins, see `_hidden`, and put their texts back.

        A short text may also be one of the template's own words, but a stand-in is not.
        """
        prompt = self.render(hidden, variables)
        stand_in = f"{marks.before}{marks.after}(\\d+){marks.after}"
        present = set(re.findall(stand_in, prompt))
        # Without texts, only calls are looked for.
        if len(present) < len(texts) or lacking(prompt, hidden, [""] * len(hidden), marks.before):
            raise _refusal("it leaves out a message, or a part of it")
        return re.sub(stand_in, lambda match: texts[int(match[1])], prompt)

    def encode(self, text: str, marks: Marks, limit: int, *, begins: bool) -> list[int]:
        """Return the ids of a rendered text; marked parts are encoded as ordinary text.

        Args:
            text: A template's output for marked messages, or a text without marks.
            marks: The marks in it.
            limit: The most tokens that are of use.
            begins: Whether to add the tokens with which the tokenizer begins and ends a text.

        Raises:
            PromptTooLongError: If there are more; raised early to save work.
        """
        if len(text) > _SLICE_CHARACTERS:
            self._refuse_excess(marks.removed(text), limit)
        (first, _), *others = self._tokens.split(text, marks)
        ids, end = self._encode_first(first, begins, alone=not others)
        for part, is_plain in others:
            ids += self._encode_inside(part, self._encode_plainly if is_plain else self._encode_safely)
        return ids + end

    def _refuse_excess(self, text: str, limit: int) -> None:
        """Raise PromptTooLongError as soon as the beginning of a text has more tokens than the limit."""
        count = 0
        for start in range(0, len(text), _SLICE_CHARACTERS):
            part = text[start : start + _SLICE_CHARACTERS]
            # A border between parts adds a few tokens.
            count += len(self._encode(part)) - 8
            if count > limit:
                raise PromptTooLongError(
                    f"This chat is too long for the model, which takes {limit:,} tokens.", LENGTH_HINT
                )

    def _encode_first(self, part: str, begins: bool, *, alone: bool) -> tuple[list[int], list[int]]:
        """Return the first part's ids, with those that begin a text if `begins`, and those that end it.

        Args:
            part: The first part.
            begins: See `encode`.
            alone: Whether it is the only part.
        """
        ids = self._encode_safely(part)
        if not begins:
            return ids, []
        encoded: list[int] = list(self.tokenizer.encode(part))
        if alone:
            return encoded, []
        # What stands before the part's own ids begins a text, and what stands behind them ends it.
        start = next((at for at in range(len(encoded)) if encoded[at : at + len(ids)] == ids), 0)
        return encoded[: start + len(ids)], encoded[start + len(ids) :]

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _encode_safely(self, text: str) -> list[int]:
        """Encode text of the template and unmarked text of messages.

        Normalisers can turn ordinary text, such as other cases or widths, into control tokens; such parts are encoded
        as ordinary text.
        """
        ids = self._encode(text)
        if sum(token_id in self._ids for token_id in ids) <= self._tokens.count(text):
            return ids
        coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        pairs = zip(coded["input_ids"], coded["offset_mapping"], strict=True)
        # Start and end of each text that became a control token without spelling one.
        wrong = [span for token, span in pairs if token in self._ids and text[slice(*span)].strip() not in self.control]
        ids = []
        done = 0
        for start, end in wrong:
            ids += self._encode_inside(text[done:start], self._encode)
            ids += self._encode_inside(text[start:end], self._encode_plainly)
            done = end
        return ids + self._encode_inside(text[done:], self._encode)

    def _encode_inside(self, part: str, encode: Callable[[str], list[int]]) -> list[int]:
        """Encode a later part of a text, without the space that some tokenizers add before a text.

        None adds one after a line end, so the part is encoded behind one, whose ids are then removed.
        """
        if not part:
            return []
        line_end = encode("\n")
        ids = encode("\n" + part)
        return ids[len(line_end) :] if ids[: len(line_end)] == line_end else encode(part)

    def _encode_plainly(self, text: str) -> list[int]:
        """Encode text without matching added tokens; if its pieces match one, it is split into characters."""
        ids = self._without_added(text)
        if self._ids.isdisjoint(ids):
            return ids
        return [token_id for character in text for token_id in self._without_added(character)]

    def _without_added(self, text: str) -> list[int]:
        """Encode text by the vocabulary alone: of added tokens, transformers itself can only pass over special ones."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            # It is a tokenizer in Python.
            return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        pieces = [text]
        if backend.pre_tokenizer is not None:
            pieces = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        return [token.id for word in pieces for token in backend.model.tokenize(word)]


def filled(prompt: str, placeholder: str, expanded: Sequence[str], mark: str) -> str:
    """Return a rendered prompt in which the text of each image stands for its placeholder.

    Args:
        prompt: A template's output.
        placeholder: What templates write for an image.
        expanded: The text of each image, in order.
        mark: What stands before a placeholder that is text, which stays as it is.

    Raises:
        TemplateRefusedError: If the template did not write one placeholder for each image.
    """
    first, *others = re.split(f"(?<!{re.escape(mark)}){re.escape(placeholder)}", prompt)
    if len(others) != len(expanded):
        raise _refusal(f"it has a place for {len(others)} of its {len(expanded)} images")
    return first + "".join(image + text for image, text in zip(expanded, others, strict=True))


class _Part(UserDict[str, str]):
    """A part of a message's content, as a dict that a template can read, but not write as it is.

    As text it is a character by which `render` knows; JSON of it cannot be made.
    """

    def __repr__(self) -> str:
        return _PRINTED


def _in_parts(turns: Turns, image: str, roles: Collection[str]) -> Turns:
    """Return messages with their contents as lists of parts: texts and images, in their order.

    Args:
        turns: The messages, where `image` stands for images.
        image: See `Marks.image`.
        roles: Messages of other roles stay as they are where they have no images.
    """
    changed = Turns()
    for turn in turns:
        pieces = [piece for piece in re.split(f"({image})", turn["content"]) if piece] or [""]
        # Pixtral's template wants a text's `content`.
        parts = [
            _Part(type="image") if piece == image else _Part(type="text", text=piece, content=piece) for piece in pieces
        ]
        stays = turn["role"] not in roles and image not in pieces
        changed.append(turn if stays else turn | {"content": parts})
    return changed


def _hidden(turns: Turns, texts: Sequence[str], marks: Marks) -> tuple[Turns, list[str]]:
    """Return messages with a stand-in for each of their texts, and the texts by the stand-ins' numbers.

    With « and » as marks, the messages `Hi` and `Hello` become `«»0»` and `«»1»`. Images stay where they are.
    """
    hidden = Turns()
    hidden_texts = list[str]()
    for turn, text in zip(turns, texts, strict=True):
        stand_ins = list[str]()
        for piece in text.split(marks.image):
            if piece:
                stand_ins.append(f"{marks.before}{marks.after}{len(hidden_texts)}{marks.after}")
                hidden_texts.append(piece)
            else:
                stand_ins.append("")
        # A thought before the text may have the same words, so the last occurrence is replaced. An empty text replaces
        # nothing: two marks side by side occur nowhere.
        replaced = text or marks.after * 2
        around = turn["content"].rsplit(replaced, 1)
        hidden.append(turn | {"content": marks.image.join(stand_ins).join(around)})
    return hidden, hidden_texts


def _refusal(reason: str) -> TemplateRefusedError:
    """Return the error about a template; the reason has no full stop."""
    return TemplateRefusedError(f"The model's chat template does not accept this chat: {reason}.", _TEMPLATE_HINT)
