"""Modes that are chosen by hand draft as asked, and verify that in the calls that were measured as cheapest."""

from dataclasses import replace

import pytest

import rdchat.inference.drafters as drafters
from rdchat.inference.api import DraftSettings, Mode, ReplyEnd
from rdchat.inference.auto.cost_model import MAX_ROWS, PLAIN_STEP, Part
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.lookup_index import max_nodes
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.verifier import PackedTree, Verified, Verifier
from tests.grids import share
from tests.inference.fakes import ALPHABET, ask, reply_end, tiny_llama

CHEAP_16 = {1: 1.0, 2: 3.0, 15: 3.0, 16: 2.0, 17: 4.0, MAX_ROWS: 6.0}
DEAR = {rows: float(rows) for rows in range(1, MAX_ROWS + 1)}


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The nodes and the rows of each target call that verifies a draft."""
    calls: list[tuple[int, int]] = []
    verify = Verifier.verify

    def noted(self: Verifier, tree: PackedTree, rows: int = 0) -> Verified:
        calls.append((len(tree), max(rows, len(tree))))
        return verify(self, tree, rows)

    monkeypatch.setattr(Verifier, "verify", noted)
    return calls


def session_with(calls: dict[int, float]) -> ChatSession:
    """Return a session with a target whose calls were measured to cost this; windows end within its padded calls."""
    session = ChatSession(tiny_llama(sliding_window=8))
    session.drafters.auto.look_up_costs()
    measured = {(rows, 128): ms for rows, ms in calls.items()}
    session.drafters.auto.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, **measured})
    return session


def reply(session: ChatSession, settings: DraftSettings) -> ReplyEnd:
    end = reply_end(session.generate(replace(ask("abcabcabcabc", temperature=0.7, max_tokens=30), draft=settings)))
    assert end.mode is settings.mode
    return end


@pytest.mark.slow
def test_prompt_lookup_is_padded_to_cheaper_rows(verified: list[tuple[int, int]]) -> None:
    settings = DraftSettings(Mode.LOOKUP, draft_tokens=5)
    padded = reply(session_with(CHEAP_16), settings)
    assert {rows for nodes, rows in verified if 1 < nodes <= 16} == {16}
    assert all(rows == nodes <= 1 + max_nodes(5) for nodes, rows in verified if nodes > 16)
    assert {rows for nodes, rows in verified if nodes == 1} <= {1}
    verified.clear()
    assert reply(session_with(DEAR), settings).token_ids == padded.token_ids
    assert all(nodes == rows for nodes, rows in verified)
    assert reply(session_with(DEAR), DraftSettings(Mode.OFF)).token_ids == padded.token_ids


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "nodes", "later"), share([(CHEAP_16, 16, 16), (DEAR, 5, 3)], 2))
def test_a_draft_model_adds_runner_ups_by_what_rows_cost_and_follows_a_change_of_its_length(
    calls: dict[int, float],
    nodes: int,
    later: int,
    verified: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = session_with(calls)
    draft = DraftModel(session.model, tiny_llama(seed=3), len(ALPHABET))
    monkeypatch.setattr(drafters, "load_draft_model", lambda *_a, **_k: draft)
    settings = DraftSettings(Mode.SPECULATIVE, draft_model="small", draft_tokens=4)
    asked = replace(ask("abcabcabcabc", temperature=0, max_tokens=40), draft=settings)
    changed = False
    for _ in (running := session.generate(asked)):
        if len(verified) == 3 and not changed:
            changed = True
            assert {size for size, _ in verified} == {nodes}
            verified.clear()
            running.update(replace(settings, draft_tokens=2))
    assert changed
    assert max(size for size, _ in verified) == later


def test_nothing_measured_leaves_drafts_as_they_are(verified: list[tuple[int, int]]) -> None:
    reply(ChatSession(tiny_llama()), DraftSettings(Mode.LOOKUP, draft_tokens=5))
    assert verified
    assert all(nodes == rows for nodes, rows in verified)
