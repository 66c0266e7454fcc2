"""The rules of an answer's shape (JSON schema, expression or grammar), which a `ReplyMatcher` keeps a reply within.

llguidance (MIT, https://github.com/guidance-ai/llguidance) computes which tokens may come next. `reply_matcher` says
how they keep the text a function of prompt, seed and shape.
"""

import llguidance
import numpy as np

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import SHAPE_HINT, AnswerShape
from rdchat.inference.decoding.reply_matcher import TokenBits, marker_parts
from rdchat.inference.prompts.shape_grammar import after_thought, grammar_of, problem_line, unforced
from rdchat.inference.verification import LoadedModel
from rdchat.json_schema import limits

# Those of ASCII that texts have, and the line end.
_LETTERS = {bytes([letter]) for letter in (10, *range(32, 127))}


class ShapeVocabulary:
    """A model's tokens as llguidance needs them; takes about a second to make.

    llguidance's `TokenizerWrapper` reads the attributes without an underscore, and calls the object to tokenise.

    Args:
        model: The target.
    """

    def __init__(self, model: LoadedModel) -> None:
        size = model.info.vocabulary_size
        control = model.prompts.control
        ends = sorted(model.end_tokens)
        known = min(size, len(model.tokenizer))
        self.tokens = [model.token_data(token) for token in range(known)] + [b""] * (size - known)
        for token, text in control.items():
            if token < size:
                self.tokens[token] = text.encode()
        self._control = {text: token for token, text in control.items() if token < size}
        # An end is no text of a shape, also where it has one, such as two line ends.
        special = {*control, *ends}
        self.special_token_ids = sorted(special)
        self.eos_token_id = ends[0]
        self.bos_token_id = None
        # The id of each token's bytes; of several with the same bytes, the lowest.
        self._by_data = {data: token for token, data in reversed(list(enumerate(self.tokens)))
                         if data and token not in special}  # fmt: skip
        self._longest = max(map(len, self._by_data), default=1)
        # Letters that only an end has: a text that a shape forces may have another spelling than ours, or none.
        self._lost = _LETTERS & {self.tokens[end] for end in ends if end < known} - self._by_data.keys()
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self), n_vocab=size, eos_token=ends)

    def __call__(self, text: bytes) -> list[int]:
        """Tokenise by the longest token each time. It may differ from the model's tokenizer, which is foreign code.

        What is drafted depends on it, and masks where a shape forces a text: they allow these tokens only, unless an
        end has taken a letter. A text that they do not spell is cut short.
        """
        ids = list[int]()
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._by_data), 0)
            if not end:
                return ids
            ids.append(self._by_data[text[start:end]])
            start = end
        return ids

    def rules(self, shape: AnswerShape, closing: str = "", begun: str = "") -> "ShapeRules":
        """Return the rules of a reply.

        Args:
            shape: The answer's shape.
            closing: The marker that ends the thought with which the reply begins; empty if it begins with the answer.
            begun: The text with which the reply was begun.

        Raises:
            ShapeRefusedError: If the shape cannot be used with this vocabulary, or the text does not fit.
        """
        grammar = grammar_of(shape)
        marker = marker_parts(closing, self._control)
        grammar = after_thought(grammar, closing, marker) if closing else grammar
        grammar = unforced(grammar) if self._lost else grammar
        llmatcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits())
        rules = ShapeRules(llmatcher, shape.label)
        # What is begun is fed to the matcher: the thought, its marker if it is there, and the answer.
        thought, closed, answer = begun.partition(closing) if closing else ("", "", begun)
        tokens = list[int]()
        for part in (thought, *(marker if closed else ()), answer):
            tokens += [part] if isinstance(part, int) else self(part.encode())
        # The matcher refuses what does not fit; the bytes differ where no tokens spell the text.
        if not llmatcher.consume_tokens(tokens) or b"".join(self.tokens[token] for token in tokens) != begun.encode():
            raise ShapeRefusedError(
                f"The beginning of the answer does not fit the {shape.label}.", "Leave it out, or change it."
            )
        rules.taken += tokens
        return rules


class ShapeRules:
    """Follows one reply through its answer format; see `Rules`.

    Args:
        matcher: llguidance's matcher, at the beginning of the format.
        label: The shape's name for people.

    Attributes:
        taken: Tokens so far, those of the text with which the reply was begun included.
    """

    def __init__(self, matcher: llguidance.LLMatcher, label: str) -> None:
        self._matcher = matcher
        self._first = matcher.deep_copy()
        self._label = label
        self.taken: list[int] = []
        self._check()

    def is_free(self, count: int) -> bool:
        """See `Rules`; a format is never sure to allow any token."""
        del count
        return False

    def forced(self) -> list[int]:
        """Return tokens of the text that must come next; the model may still split it otherwise."""
        return [int(token) for token in self._matcher.compute_ff_tokens()]

    def allowed(self) -> TokenBits:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        return bits

    def take(self, token: int) -> None:
        self.taken.append(token)
        if not self._matcher.consume_token(token):
            self._check()

    def back(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]
        # One that failed cannot go back.
        if count and not self._matcher.rollback(count):
            self._matcher = self._first.deep_copy()
            self._matcher.consume_tokens(self.taken)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            problem = problem_line(self._matcher.get_error())
            raise ShapeRefusedError(f"The {self._label} cannot be followed any further: {problem}.", SHAPE_HINT)
