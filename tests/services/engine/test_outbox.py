import pytest

from rdchat.inference.api.events import LoadProgress, PrefillProgress
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.services.engine.engine_events import EngineEvent, Failure, LoadEvent, ReplyProgress
from rdchat.services.engine.outbox import Outbox, merge


def progress(request_id: int, text: str, tokens: int) -> ReplyProgress:
    return ReplyProgress(request_id, text, Statistics(generated_tokens=tokens))


def loading(load_id: int, fraction: float) -> LoadEvent:
    return LoadEvent(load_id, LoadProgress("Reading weights", fraction))


@pytest.mark.parametrize(
    ("older", "newer", "merged"),
    [
        (progress(1, "He", 1), progress(1, "llo", 2), progress(1, "Hello", 2)),
        (PrefillProgress(1, 4, 8, 0), PrefillProgress(1, 8, 8, 0), PrefillProgress(1, 8, 8, 0)),
        (loading(1, 0.1), loading(1, 0.2), loading(1, 0.2)),
        (progress(1, "He", 1), progress(2, "llo", 1), None),
        (PrefillProgress(1, 4, 8, 0), PrefillProgress(2, 4, 8, 0), None),
        (loading(1, 0.1), loading(2, 0.1), None),
        (PrefillProgress(1, 8, 8, 0), progress(1, "He", 1), None),
        (progress(1, "He", 1), Failure(1, "No.", ""), None),
        (loading(1, 0.1), LoadEvent(1, Failure(None, "No.", "")), None),
    ],
)
def test_only_progress_of_one_request_is_merged(
    older: EngineEvent, newer: EngineEvent, merged: EngineEvent | None
) -> None:
    assert merge(older, newer) == merged


def test_an_outbox_keeps_the_order_and_wakes_its_reader_once() -> None:
    outbox = Outbox()
    woken = [
        outbox.put(event)
        for event in (progress(1, "a", 1), progress(1, "b", 2), Failure(1, "", ""), progress(2, "c", 1))
    ]
    assert woken == [True, False, False, False]
    assert len(outbox) == 3
    assert [outbox.take() for _ in range(4)] == [
        progress(1, "ab", 2),
        Failure(1, "", ""),
        progress(2, "c", 1),
        None,
    ]
    assert outbox.put(progress(3, "d", 1))
