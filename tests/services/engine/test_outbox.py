from collections import deque

from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    LoadProgress,
    PrefillProgress,
    Role,
    Statistics,
    TokenEvent,
)
from rdchat.services.engine.engine_request import (
    EngineEvent,
    EngineRequest,
    Failure,
    Outbox,
    ReplyProgress,
)
from rdchat.services.engine.engine_worker import take_merged


def made() -> EngineRequest:
    command = GenerationRequest((ChatMessage(Role.USER, "Hi"),), draft=DraftSettings())
    return EngineRequest(command, lambda _event: None)


def progress(text: str, tokens: int) -> ReplyProgress:
    return ReplyProgress(Statistics(generated_tokens=tokens), tuple(TokenEvent(1, 0, 0, each) for each in text))


def loading(fraction: float) -> LoadProgress:
    return LoadProgress("Reading weights", fraction)


def through(*events: tuple[EngineRequest, EngineEvent]) -> list[tuple[EngineRequest, EngineEvent]]:
    outbox: Outbox = deque(events)
    taken = []
    while outbox:
        taken.append(take_merged(outbox))
    return taken


def test_progress_of_one_request_is_merged() -> None:
    one = made()
    assert through((one, progress("He", 1)), (one, progress("l", 2)), (one, progress("lo", 3))) == [
        (one, progress("Hello", 3))
    ]
    prefill = [PrefillProgress(1, read, 8, 0) for read in (4, 8)]
    assert through(*((one, each) for each in prefill)) == [(one, prefill[1])]
    assert through((one, loading(0.1)), (one, loading(0.2))) == [(one, loading(0.2))]


def test_other_events_and_other_requests_are_kept_apart_in_order() -> None:
    one = made()
    other = made()
    apart: list[tuple[EngineRequest, EngineEvent]] = [
        (one, loading(0.1)),
        (other, loading(0.1)),
        (other, PrefillProgress(1, 8, 8, 0)),
        (other, progress("He", 1)),
        (one, progress("llo", 1)),
        (one, Failure("No.", "")),
        (one, Failure("No.", "")),
    ]
    assert through(*apart) == apart


def test_merged_progress_has_all_tokens_and_the_time_of_the_first() -> None:
    one = made()
    tokens = [TokenEvent(1, index, index, text) for index, text in enumerate("ab")]
    early = ReplyProgress(Statistics(), (tokens[0],), written_at=1.0)
    late = ReplyProgress(Statistics(), (tokens[1],), written_at=2.0)
    ((_, merged),) = through((one, early), (one, late))
    assert isinstance(merged, ReplyProgress)
    assert (merged.tokens, merged.written_at) == (tuple(tokens), 1.0)
