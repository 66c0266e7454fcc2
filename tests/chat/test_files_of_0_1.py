"""The data folder that version 0.1 wrote (`tests/fixtures/version_0_1`) is read without losing a field."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.conversation import Conversation, Drafting, Message, MessageStatus
from rdchat.chat.reply_trace import ReplyTrace, decode
from rdchat.chat.settings import Appearance, ModelDraft, Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.events import FinishReason, RoundTree, TokenEvent
from rdchat.inference.api.reply_statistics import AutoChoice, LedgerEntry, RoundStatistics, Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode, Role, SamplingParams

FILES = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "data"
# All values differ from the defaults, so a field that is no longer read is seen.
SAMPLING = SamplingParams(
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    repetition_penalty=1.1,
    max_tokens=77,
    stop=("END", "\n\n"),
)
DRAFT = DraftSettings(
    mode=Mode.DRAFTER,
    draft_model="a/draft",
    draft_tokens=6,
    drafter="a drafter",
    beam_width=3,
    beam_length=7,
    lookup_branch=False,
    profile=True,
    trace=True,
)
CHOICE = AutoChoice(mode="recurrent", width=4, length=5, tokens_per_call=2.5, cost=1.25, words="It pays.")
STATISTICS = Statistics(
    prompt_tokens=40,
    cached_prompt_tokens=12,
    generated_tokens=6,
    prefill_ms=30.5,
    ttft_ms=31.5,
    decode_ms=50.25,
    rounds=2,
    drafted=8,
    accepted=3,
    target_calls=2,
    verified_nodes=11,
    host_syncs=5,
    drafted_lengths=(0, 0, 0, 0, 2),
    accepted_lengths=(0, 1, 1),
    peak_memory_bytes=123456,
    context_tokens=46,
    ledger=(
        LedgerEntry(name="round", parent="", calls=2, total_ms=40.0),
        LedgerEntry(name="draft", parent="round", calls=2, total_ms=11.5),
    ),
    plain_step_ms=12.5,
    choice=CHOICE,
)
DRAFTING = Drafting(mode=Mode.DRAFTER, reason="Recurrent was not to be had.", drafter="a drafter", last_part=True)
TREE = RoundTree(
    tokens=(7, 8, 9, 8),
    parents=(-1, 0, 1, 0),
    drafters=("", "drafter", "drafter", "lookup"),
    log_probs=(0.0, -0.5, -1.25, -0.5),
    path=(0, 1, 2),
    correction=10,
    texts=("A", "b", "c", "b"),
    correction_text="d",
    correction_log_prob=-0.75,
)


def trace() -> ReplyTrace:
    written, onward = ReplyTrace(), ReplyTrace(begins_at=4)
    written.add(
        [
            TokenEvent(1, 0, 7, "A", log_prob=-0.25),
            TokenEvent(1, 1, 8, "b", "drafter", 1, log_prob=-0.5),
            TokenEvent(1, 2, 9, "c", "drafter", 2, log_prob=-1.25),
            TokenEvent(1, 3, 10, "d", round=RoundStatistics(1, 4, 2, 3, 4), tree=TREE, log_prob=-0.75),
        ]
    )
    onward.add([TokenEvent(2, 0, 11, "e", "lookup", 1, RoundStatistics(1, 1, 1, 1, 2), None, -0.5)])
    written.join(onward)
    return written


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    shutil.copytree(FILES, tmp_path / "data")
    store = ConversationStore(tmp_path / "data" / "conversations.db")
    assert store.notice is None
    yield store
    store.close()


def test_chats(store: ConversationStore) -> None:
    interrupted, chat = store.conversations()
    assert chat == Conversation(1, "A chat", 1000.0, chat.updated_at, "Be brief.", SAMPLING)
    assert chat.updated_at is not None
    assert 1000 < chat.updated_at < 1100
    assert interrupted.title == "Interrupted"
    assert [(each.text, each.status) for each in store.messages(interrupted.id)] == [
        ("And?", MessageStatus.COMPLETE),
        ("So", MessageStatus.INTERRUPTED),
    ]


def test_an_edited_question_and_a_failed_reply(store: ConversationStore) -> None:
    question, reply = store.messages(1)
    assert (question.text, question.role, question.parent_id) == ("Why not?", Role.USER, None)
    assert (question.sibling, question.siblings) == (1, 2)
    assert (reply.text, reply.status, reply.error) == ("Hm", MessageStatus.FAILED, "It failed.")


def test_a_drafted_reply_and_its_alternative(store: ConversationStore) -> None:
    question, reply = store.select_sibling(store.messages(1)[0].id, -1)
    expected = Message(
        id=reply.id,
        conversation_id=1,
        parent_id=question.id,
        role=Role.ASSISTANT,
        text="Abcd",
        status=MessageStatus.COMPLETE,
        created_at=reply.created_at,
        model="tiny",
        seed=2**63 + 1,
        finish_reason=FinishReason.EOS,
        statistics=STATISTICS,
        drafting=DRAFTING,
        sibling=1,
        siblings=2,
    )
    assert reply == expected
    assert reply.created_at is not None
    assert 1000 < reply.created_at < 1100
    first = store.select_sibling(reply.id, -1)[-1]
    assert (first.text, first.seed, first.statistics, first.drafting) == ("Because.", 2**63, None, None)


def test_the_trace(store: ConversationStore) -> None:
    reply = store.select_sibling(store.messages(1)[0].id, -1)[-1]
    packed = store.trace(reply.id)
    assert packed is not None
    assert decode(packed) == trace()


def test_settings(tmp_path: Path) -> None:
    shutil.copy(FILES / "settings.json", tmp_path)
    read = SettingsStore(tmp_path / "settings.json")
    assert read.notice is None
    assert read.settings == Settings(
        appearance=Appearance.DARK,
        text_size=17,
        sampling=SAMPLING,
        system_prompt="Be kind.",
        seed=42,
        model="a/model",
        dtype=Dtype.FOUR_BIT,
        recent_models=("a/model", "b"),
        drafts=(ModelDraft("a/model", DRAFT), ModelDraft("b", DraftSettings(Mode.LOOKUP))),
        models_folder="models",
        panel_visible=False,
        panel_collapsed=("ledger", "draft"),
        sidebar_visible=False,
        window_geometry="Z2VvbQ==",
        window_state="c3RhdGU=",
    )
