"""An index of earlier replies, for prompt lookup, which `services/engine/earlier_replies.py` fills. No MLX here."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from threading import Lock
from typing import override

from rdchat.inference.api import EarlierReplies, LookupMatch
from rdchat.inference.drafting.lookup_index import DEEPEST, SEPARATOR, Occurrences

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
