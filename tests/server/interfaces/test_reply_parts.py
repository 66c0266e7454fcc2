"""What a client gets of a reply, by the batches in which its events come."""

import pytest

from rdchat.inference.api import FinishReason, Piece, PrefillProgress, ReplyEnd, Statistics, TokenEvent
from rdchat.server.interfaces.reply_request import Delta, Prompt, ReplyParts, ReplyRequest
from tests.split_replies import told

_START = PrefillProgress(0, 8, 8, 2, False)
_TOKENS = (TokenEvent(0, 0, 1, "Yes", log_prob=-0.5, pieces=(Piece("Yes"),)), TokenEvent(0, 1, 99, "", log_prob=-0.5))
_END = ReplyEnd(0, "Yes", (1, 99), "", FinishReason.EOS, Statistics(), told=told("Yes"))


@pytest.mark.parametrize("first", [2, 3])
def test_final_eos_is_not_listed_as_a_token(first: int) -> None:
    parts = ReplyParts(0, ReplyRequest("", (Prompt(text="Go on"),), {}, 0, top_log_probs=0), 0)
    events = (_START, *_TOKENS, _END)
    made = [*parts.take_events(events[:first]), *parts.take_events(events[first:])]
    deltas = [part if isinstance(part, Delta) else part[1] for part in made if not isinstance(part, PrefillProgress)]
    assert [token.token_id for delta in deltas for token in delta.tokens] == [1]
