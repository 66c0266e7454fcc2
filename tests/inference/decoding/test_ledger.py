"""The time ledger: what ran inside what, how often and how long, and how people read it."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import pytest

from rdchat.inference.api import DraftSettings, LedgerEntry, Mode, Spent, Stage, Statistics
from rdchat.inference.api.ledger_view import (
    REPLY,
    LedgerRow,
    grouped_entries,
    ledger_csv,
    ledger_rows,
)
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.session import ChatSession
from tests.inference.fakes import ask, reply_end, shared_llama


def statistics_of(mode: Mode, profile: bool) -> Statistics:
    asked = ask("abcabcabc", temperature=0, max_tokens=20)
    draft = DraftSettings(mode, profile=profile)
    return reply_end(ChatSession(shared_llama()).generate(replace(asked, draft=draft))).statistics


def calls_of(ledger: Ledger) -> dict[str, int]:
    return {entry.path: entry.calls for entry in ledger.entries(1) if entry.name != Stage.NOT_MEASURED}


def test_stages_of_one_name_under_different_stages_are_kept_apart() -> None:
    """They were once told apart by their parent's name only, so grandchildren of two stages were added up."""
    ledger = Ledger()
    for outer, calls in (("draft", 1), ("verify", 2)):
        with ledger.stage(outer), ledger.stage("model"):
            for _ in range(calls):
                with ledger.stage("layer"):
                    pass
    calls = calls_of(ledger)
    assert calls["draft/model/layer"] == 1
    assert calls["verify/model/layer"] == 2


def test_a_stage_that_fails_is_counted_and_closed() -> None:
    ledger = Ledger()
    with pytest.raises(RuntimeError), ledger.stage("outer"), ledger.stage("inner"):
        raise RuntimeError
    with ledger.stage("next"):
        pass
    assert calls_of(ledger) == {"outer": 1, "outer/inner": 1, "next": 1}


ENTRIES = (
    LedgerEntry("round", "", 4, 80.0),
    LedgerEntry("draft", "round", 4, 20.0),
    LedgerEntry("prefill", "", 1, 30.0),
    LedgerEntry("verify", "round", 4, 50.0),
    LedgerEntry("lookup", "round/draft", 2, 5.0),
)
ROWS = (
    LedgerRow("round", 0, 4, 20.0, 80.0, None, ""),
    LedgerRow("draft", 1, 4, 5.0, 20.0, 25.0, "round"),
    LedgerRow("lookup", 2, 2, 2.5, 5.0, 25.0, "round/draft"),
    LedgerRow("verify", 1, 4, 12.5, 50.0, 62.5, "round"),
    LedgerRow("prefill", 0, 1, 30.0, 30.0, None, ""),
)


def test_each_stage_is_followed_by_those_inside_it_and_several_ledgers_are_added_up() -> None:
    assert ledger_rows(ENTRIES) == ROWS
    doubled = tuple(replace(row, calls=2 * row.calls, total_ms=2 * row.total_ms) for row in ROWS)
    assert ledger_rows(2 * ENTRIES) == doubled


def test_what_has_no_figures_yet_and_what_lost_its_parent_is_shown_all_the_same() -> None:
    rows = ledger_rows([LedgerEntry("round", "", 0, 0.0), LedgerEntry("draft", "round", 0, 0.0)])
    assert [(row.mean_ms, row.percent_of_parent) for row in rows] == [(None, None), (None, None)]
    assert ledger_rows([LedgerEntry("draft", "gone", 1, 2.0)])[0].depth == 0
    assert ledger_rows([]) == ()


def test_the_csv_can_be_read_back() -> None:
    header, *lines = csv.reader(io.StringIO(ledger_csv(ROWS)))
    assert header == ["name", "depth", "calls", "mean_ms", "total_ms", "percent_of_parent", "parent"]
    assert lines[0] == ["round", "0", "4", "20.0", "80.0", "", ""]
    assert lines[2] == ["lookup", "2", "2", "2.5", "5.0", "25.0", "round/draft"]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("profile", [False, True])
def test_the_stages_of_a_round_lie_inside_it(profile: bool) -> None:
    statistics = statistics_of(Mode.LOOKUP, profile)
    rows = {f"{row.parent}/{row.name}" if row.parent else row.name: row for row in ledger_rows(statistics.ledger)}
    stages = ["round/draft", "round/draft/lookup", "round/verify", "round/choose", "round/accept", "round/commit"]
    assert {"template and tokenize", "prefill", "first token", "round", *stages} <= rows.keys()
    assert all(rows[stage].calls == statistics.rounds for stage in ("round", *stages))
    assert rows["round/accept/detokenize"].calls + rows["first token/detokenize"].calls == statistics.generated_tokens
    inside = [row.percent_of_parent for row in rows.values() if row.parent == "round"]
    assert 0 < sum(share for share in inside if share is not None) <= 100
    reply, *_ = grouped_entries(statistics.ledger)
    assert reply.total_ms >= statistics.decode_ms


class DeviceClock:
    """A clock that goes on only while MLX is asked to compute: a second for each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1
        for module in ("ledger", "reply"):
            monkeypatch.setattr(f"rdchat.inference.decoding.{module}.perf_counter_ns", lambda: self.now)
        for name in ("eval", "async_eval"):
            monkeypatch.setattr(mx, name, self._timed(getattr(mx, name)))

    def _timed(self, compute: Callable[..., None]) -> Callable[..., None]:
        def timed(*arrays: object) -> None:
            compute(*arrays)
            self.now += 10**9

        return timed


def shown_ms(statistics: Statistics) -> dict[str, float]:
    return {entry.name: entry.total_ms for entry in grouped_entries(statistics.ledger) if entry.parent == REPLY}


@pytest.mark.parametrize("profile", [False, True])
def test_what_the_device_takes_is_the_target_calls_time(monkeypatch: pytest.MonkeyPatch, profile: bool) -> None:
    """94 % of a plain reply were once charged to choosing, since the host happened to wait there."""
    DeviceClock(monkeypatch)
    statistics = statistics_of(Mode.OFF, profile)
    times = shown_ms(statistics)
    assert times[Spent.WRITING] >= 1000 * statistics.target_calls > 0
    assert times[Spent.OTHER] == 0
    assert times.keys() == {Spent.READING, Spent.WRITING, Spent.OTHER}, "once, drafting was named in every reply"


def test_a_round_with_a_draft_that_was_looked_up_waits_for_the_target_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    DeviceClock(monkeypatch)
    statistics = statistics_of(Mode.LOOKUP, profile=False)
    times = shown_ms(statistics)
    assert times[Spent.CHECKING] == 1000 * statistics.rounds
    assert times[Spent.DRAFTING] == 1000 * statistics.rounds, "its tokens are handed to the device"
    assert times[Spent.OTHER] == 0


@pytest.mark.parametrize("mode", [Mode.LOOKUP, Mode.OFF])
def test_exact_times_cost_waits_which_say_what_they_are_for_and_change_nothing_else(mode: Mode) -> None:
    """The window once found it out from the recorded paths."""
    with_exact_times, quick = (statistics_of(mode, profile) for profile in (True, False))
    assert with_exact_times.host_syncs > quick.host_syncs
    counts = [(each.generated_tokens, each.rounds, each.accepted) for each in (with_exact_times, quick)]
    assert counts[0] == counts[1]
    exact, usual = ({entry.name for entry in each.ledger} & {*Stage} for each in (with_exact_times, quick))
    together = {Stage.WAIT, Stage.WAIT_WITH_DRAFT, Stage.QUEUE}
    assert {Stage.FORWARD_WAIT, Stage.CHOICE_WAIT} <= exact
    assert not exact & together
    assert Stage.WAIT in usual
    assert not usual & {Stage.FORWARD_WAIT, Stage.CHOICE_WAIT}
    for names in (exact, usual):
        assert (Stage.DRAFT_WAIT in names) == (mode is Mode.LOOKUP)


def test_a_draft_that_was_queued_is_waited_for_with_the_call() -> None:
    ledger = Ledger()
    with ledger.stage("draft"), ledger.stage("beam search"):
        ledger.synchronize(mx.array(1))
    for _ in range(2):
        with ledger.stage("choose"), ledger.waiting():
            pass
    with ledger.stage("draft"):
        with ledger.stage("beam search"):
            ledger.synchronize(mx.array(1))
        ledger.wait(mx.array(1))
    with ledger.stage("choose"), ledger.waiting():
        pass
    waits = {path: calls for path, calls in calls_of(ledger).items() if "wait" in path}
    assert waits == {"choose/wait with draft": 1, "choose/wait": 2, "draft/wait for the draft": 1}


def test_time_that_no_stage_took_and_the_readers_time_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DeviceClock(monkeypatch)
    ledger = Ledger()
    with ledger.stage("prefill"):
        clock.now += 5_000_000
    clock.now += 1_000_000
    ledger.hand_over()
    clock.now += 2_000_000
    ledger.take_back()
    ledger.hand_over()
    clock.now += 3_000_000
    told = {entry.name: (entry.calls, entry.total_ms) for entry in ledger.entries(clock.now)}
    assert told == {"prefill": (1, 5.0), "hand over": (2, 5.0), "not measured": (1, 1.0)}
