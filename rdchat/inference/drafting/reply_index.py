"""An index of earlier replies, for prompt lookup, and their tokens: `updated_index` fills it from a store. No MLX here.

A reply's tokens are those of the loaded model's tokenizer; they are stored, so that only new ones have to be made.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from threading import Lock
from typing import override

from rdchat.inference.api import EarlierReplies, LookupMatch, ModelInfo
from rdchat.inference.drafting.lookup_index import DEEPEST, SEPARATOR, Occurrences
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers, tokenizer_key

MAX_TOKENS = 200_000
# Limit in a new index, so that later replies have room.
BUILT_TOKENS = 180_000
# Approximate memory of a token.
_TOKEN_BYTES = 300
_MAX_MATCHES = 12


class ReplyIndex(EarlierReplies):
    """Finds the end of a text in earlier replies. Any thread may use it.

    Args:
        replies: Token ids of each reply by the message's id, newest first. Those beyond `BUILT_TOKENS` are left out.
        tokenizer: Names the tokenizer of the ids.

    Attributes:
        messages: Ids of the messages in the index.
    """

    def __init__(self, replies: Mapping[int, Sequence[int]], tokenizer: str = "") -> None:
        self.messages = set[int]()
        self.tokenizer = tokenizer
        # Built from the end: the newest replies come last in the text, since the last matches are found first.
        backwards = list[int]()
        for message, reply in replies.items():
            if len(backwards) < BUILT_TOKENS:
                backwards += (SEPARATOR, *reversed(reply))
                self.messages.add(message)
        self._text = Occurrences(reversed(backwards[:BUILT_TOKENS]))
        self._text.index_runs()
        self._lock = Lock()

    @property
    def tokens(self) -> int:
        """The number of tokens, with a separator for each reply."""
        return len(self._text.tokens)

    @property
    def memory_bytes(self) -> int:
        return _TOKEN_BYTES * self.tokens

    def add_reply(self, message: int, reply: Sequence[int]) -> None:
        """Add a reply, if there is room for it."""
        with self._lock:
            if self.tokens + len(reply) < MAX_TOKENS:
                self._text.tokens += [*reply, SEPARATOR]
                self.messages.add(message)

    @override
    def matches(self, ending: Sequence[int]) -> list[LookupMatch]:
        with self._lock:
            tokens = self._text.tokens
            matches = [
                LookupMatch(length, list(takewhile(SEPARATOR.__ne__, tokens[end : end + DEEPEST])), True)
                for end, length in self._text.positions(ending, _MAX_MATCHES)
            ]
        return [match for match in matches if match.following]


type Newest = Callable[[str], Iterable[tuple[int, Sequence[int] | None, str]]]
"""Returns id, token ids and text of replies for a tokenizer, newest first; ids that are not known are None."""


def updated_index(
    newest: Newest, save: Callable[[int, str, Sequence[int]], object], model: ModelInfo, index: ReplyIndex | None
) -> ReplyIndex | None:
    """Return the index of the stored replies: the present one, or a new one where it is out of date.

    The replies are read newest first, up to `MAX_TOKENS`. The present index is kept if it has just these. If there are
    `BUILT_TOKENS` or more, it was built without the oldest, so only those not older than its oldest are compared.

    Args:
        newest: See `Newest`; an exception from it ends the work.
        save: Stores the token ids of a message, with the tokenizer.
        model: The loaded model.
        index: The present index.

    Returns:
        None where the model has no file of a tokenizer.
    """
    key = tokenizer_key(model.path)
    if not key:
        return None
    replies = dict[int, Sequence[int]]()
    count = 0
    for message_id, known, text in newest(key):
        ids = known
        if ids is None:
            ids = shared_tokenizers().encode_text(model.path, text)
            save(message_id, key, ids)
        replies[message_id] = [token for token in ids if token < model.vocabulary_size]
        count += 1 + len(replies[message_id])
        if count >= MAX_TOKENS:
            break
    if index is not None:
        oldest = min(index.messages, default=0) if count >= BUILT_TOKENS else 0
        if index.messages == {message_id for message_id in replies if message_id >= oldest}:
            return index
    return ReplyIndex(replies, key)


def reply_tokens(model: ModelInfo, replies: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Return the token ids of replies, in a loaded model's tokens."""
    return tuple(tuple(shared_tokenizers().encode_text(model.path, reply)) for reply in replies)
