"""Ledgers of several replies added up, reset midway, and the cost of exact times."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from rdchat.chat.conversation import Drafting, Message, MessagePath, MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import LedgerEntry, Mode, Role, Statistics, added_up
from rdchat.services.engine.draft_control import DraftControl
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.engine.time_ledger import ProfileCost, TimeLedger
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, pause_midway


class WrittenReplies:
    """A ledger; no reply is really written."""

    def __init__(self, engine: EngineClient) -> None:
        self.model = ModelSlot(engine, Settings())
        self.drafting = DraftControl(
            self.model, SettingsControl(SettingsStore(Path("no settings")), StorageWatch(), Mock())
        )
        self.ledger = TimeLedger(self.drafting)

    def progress(self, rounds: int, verify_ms: float) -> None:
        self.ledger.add_statistics(Statistics(ledger=_entries(rounds, verify_ms)))

    def finish(self, rounds: int, verify_ms: float, tps: float = 10.0, mode: Mode = Mode.LOOKUP) -> None:
        statistics = Statistics(generated_tokens=11, decode_ms=10_000 / tps, ledger=_entries(rounds, verify_ms))
        self.ledger.add_statistics(statistics)
        self.ledger.add_end(Message(1, 1, None, Role.ASSISTANT, "", statistics=statistics, drafting=Drafting(mode)))

    def fail(self) -> None:
        self.ledger.add_end(Message(1, 1, None, Role.ASSISTANT, "", MessageStatus.FAILED))

    @property
    def verify(self) -> tuple[int, float]:
        found = [entry for entry in added_up(self.ledger.entries).values() if entry.name == "verify"]
        return (found[0].calls, found[0].total_ms) if found else (0, 0.0)


def _entries(rounds: int, verify_ms: float) -> tuple[LedgerEntry, ...]:
    wait = LedgerEntry("wait", "round/verify", rounds, verify_ms)
    return (LedgerEntry("round", "", rounds, verify_ms * 2), LedgerEntry("verify", "round", rounds, verify_ms), wait)


@pytest.fixture
def replies(make_client: Callable[..., EngineClient]) -> WrittenReplies:
    return WrittenReplies(make_client())


def test_replies_add_up_the_one_under_way_included(replies: WrittenReplies) -> None:
    assert replies.ledger.rows == ()
    replies.progress(2, 20.0)
    assert replies.verify == (2, 20.0)
    replies.finish(3, 30.0)
    replies.progress(1, 5.0)
    assert replies.verify == (4, 35.0)
    assert [(row.name, row.depth, row.total_ms) for row in replies.ledger.rows] == [
        ("reply", 0, 70.0),
        ("checking", 1, 35.0),
        ("other", 1, 35.0),
    ]


def test_time_that_was_not_measured_is_kept_over_a_reset(replies: WrittenReplies) -> None:
    def progress(ms: float) -> None:
        entries = (*_entries(1, 5.0), LedgerEntry("not measured", "", 1, ms))
        replies.ledger.add_statistics(Statistics(ledger=entries))

    progress(2.0)
    replies.ledger.start_counting()
    progress(5.0)
    assert [(row.name, row.total_ms) for row in replies.ledger.rows] == [("reply", 3.0), ("other", 3.0)]


def test_a_reset_midway_counts_from_then_on(replies: WrittenReplies) -> None:
    replies.finish(3, 30.0)
    replies.progress(2, 20.0)
    replies.ledger.start_counting()
    assert replies.ledger.rows == ()
    replies.progress(5, 44.0)
    assert replies.verify == (3, 24.0)
    replies.finish(6, 50.0)
    assert replies.verify == (4, 30.0)
    replies.progress(1, 5.0)
    assert replies.verify == (5, 35.0)


def test_what_a_failed_reply_took_is_kept(replies: WrittenReplies) -> None:
    replies.progress(2, 20.0)
    replies.fail()
    replies.progress(1, 10.0)
    assert replies.verify == (3, 30.0)


def test_a_waiting_reply_that_is_stopped_leaves_the_times_of_the_one_that_is_written(
    window: Window, engine: ScriptedEngine
) -> None:
    """Its end folded them, and the next figures of the reply under way counted them again."""
    pause_midway(window, engine)
    controller = window.controller
    store = window.store
    ledger = controller.time_ledger
    ledger.add_statistics(Statistics(ledger=_entries(2, 20.0)))
    chat = store.create_conversation("Another chat")
    waiting = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    controller.replies.write_reply(waiting, chat, MessagePath())
    controller.replies.stop_replies(chat.id)
    assert store.message(waiting.id).status is MessageStatus.COMPLETE
    ledger.add_statistics(Statistics(ledger=_entries(3, 30.0)))
    assert [(each.name, each.calls) for each in ledger.entries] == [("round", 3), ("verify", 3), ("wait", 3)]
    engine.gate.open()
    window.wait_until_idle()


def test_switching_exact_times_begins_anew(replies: WrittenReplies) -> None:
    replies.finish(3, 30.0)
    replies.drafting.set_exact_times(True)
    assert replies.ledger.rows == ()


def test_the_cost_of_exact_times_is_known_after_a_reply_of_either_kind_in_one_mode(replies: WrittenReplies) -> None:
    replies.finish(3, 30.0, tps=40.0)
    assert replies.ledger.cost is None
    replies.drafting.set_exact_times(True)
    replies.finish(3, 30.0, tps=10.0, mode=Mode.OFF)
    assert replies.ledger.cost is None, "another mode says nothing of the cost"
    replies.finish(3, 30.0, tps=30.0)
    assert replies.ledger.cost == ProfileCost(pytest.approx(30.0), pytest.approx(40.0))


def test_cost_of_exact_times_leaves_out_a_reply_with_both_settings(replies: WrittenReplies) -> None:
    replies.finish(3, 30.0, tps=40.0)
    replies.progress(1, 5.0)
    replies.drafting.set_exact_times(True)
    replies.finish(3, 30.0, tps=30.0)
    assert replies.ledger.cost is None
    replies.finish(3, 30.0, tps=20.0)
    assert replies.ledger.cost == ProfileCost(pytest.approx(20.0), pytest.approx(40.0))
