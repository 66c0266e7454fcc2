"""The automatic mode on the real default model: the text of plain decoding, before and after costs are measured."""

from typing import Any

import pytest

from rdchat.inference import ChatSession
from rdchat.inference.api.requests import Mode
from rdchat.inference.target.target import LoadedModel
from tests.e2e.model_replies import CODE, PROSE, SUMS, check_same, reply, request

pytestmark = pytest.mark.slow

COPY = "Repeat this line three times: the quick brown fox jumps over the lazy dog and runs into the forest."
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.7}, {"temperature": 1.2, "top_p": 1}]


def test_the_reply_is_that_of_plain_decoding(model: LoadedModel) -> None:
    session = ChatSession(model)
    drafted = 0
    for measured in (False, True):
        for prompt, sampling in zip((COPY, PROSE, CODE, SUMS), [*SAMPLINGS, SAMPLINGS[0]], strict=True):
            asked = request(prompt, sampling, mode=Mode.AUTO)
            plain = reply(ChatSession(model), request(prompt, sampling, mode=Mode.OFF))
            automatic = reply(session, asked)
            assert (automatic.mode, automatic.mode_reason) == (Mode.AUTO, None)
            check_same(model, asked, plain.token_ids, automatic.token_ids)
            drafted += automatic.statistics.rounds
            choice = automatic.statistics.choice
            assert choice is not None
            assert not (measured and "not measured" in choice.words)
        while session.idle():
            pass
    assert drafted > 0
    measured = reply(session, request(PROSE, {"temperature": 0}, mode=Mode.LOOKUP)).statistics.plain_step_ms
    seen = plain.statistics.decode_ms / (len(plain.token_ids) - 1)
    assert seen / 4 < measured < seen * 4  # not a step that was done before its clock began
