"""The automatic mode on the real default model: the text of plain decoding, before and after costs are measured."""

from typing import Any

import pytest

from rdchat.inference.api import Mode
from rdchat.inference.auto import auto_drafter, measuring
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.e2e.model_replies import CODE, check_same, reply, request
from tests.inference.plain_replies import plain

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

COPY = "Repeat this line three times: the quick brown fox jumps over the lazy dog and runs into the forest."
GREEDY: dict[str, Any] = {"temperature": 0}
ASKED: list[tuple[str, dict[str, Any]]] = [(COPY, GREEDY), (CODE, {"temperature": 1.2, "top_p": 1})]


def test_the_reply_is_that_of_plain_decoding(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_TRIALS", 1)
    for name in ("NEAR_ROWS", "DEEP_ROWS"):  # all else is measured as ever
        monkeypatch.setattr(auto_drafter, name, (1, 4, 16))
    monkeypatch.setattr(measuring, "DEEP", (256,))
    session = ChatSession(model)
    undrafted = [plain(model, request(prompt, sampling)) for prompt, sampling in ASKED]
    drafted = 0
    for measured in (False, True):
        while measured and session.work_while_idle():
            pass
        for (prompt, sampling), expected in zip(ASKED, undrafted, strict=True):
            asked = request(prompt, sampling, mode=Mode.AUTO)
            automatic = reply(session, asked)
            assert (automatic.mode, automatic.mode_reason) == (Mode.AUTO, None)
            check_same(model, asked, expected.token_ids, automatic.token_ids)
            drafted += automatic.statistics.rounds
            choice = automatic.statistics.choice
            assert choice is not None
            assert not (measured and "not measured" in choice.words)
    assert drafted > 0
    step_ms = reply(session, request(COPY, GREEDY, mode=Mode.LOOKUP)).statistics.plain_step_ms
    seen = min(each.statistics.decode_ms / (len(each.token_ids) - 1) for each in undrafted)
    assert step_ms > seen / 4  # not a step that was done before its clock began
