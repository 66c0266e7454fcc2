"""The time ledger: what ran inside what, how often and how long, and how people read it."""

import csv
import io

import mlx.core as mx
import pytest

from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.ledger_tree import LedgerRow, ledger_csv, ledger_note, ledger_rows
from rdchat.inference.api.reply_statistics import LedgerEntry, Statistics
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.session import ChatSession
from tests.inference.fakes import ask, tiny_llama


def statistics_of(mode: Mode, profile: bool) -> Statistics:
    plainly = ask("abcabcabc", temperature=0, max_tokens=20)
    draft = DraftSettings(mode, profile=profile)
    *_, end = ChatSession(tiny_llama()).generate(GenerationRequest(plainly.messages, plainly.sampling, 1, draft=draft))
    assert isinstance(end, ReplyEnd)
    return end.statistics


def test_stages_of_one_name_under_different_stages_are_kept_apart() -> None:
    """They were once told apart by their parent's name only, so grandchildren of two stages were added up."""
    ledger = Ledger()
    for outer, calls in (("draft", 1), ("verify", 2)):
        with ledger.stage(outer), ledger.stage("model"):
            for _ in range(calls):
                with ledger.stage("layer"):
                    pass
    calls = {entry.path: entry.calls for entry in ledger.entries()}
    assert calls["draft/model/layer"] == 1
    assert calls["verify/model/layer"] == 2


def test_a_stage_that_fails_is_counted_and_closed() -> None:
    ledger = Ledger()
    with pytest.raises(RuntimeError), ledger.stage("outer"), ledger.stage("inner"):
        raise RuntimeError
    with ledger.stage("next"):
        pass
    assert [(entry.path, entry.calls) for entry in ledger.entries()] == [("outer", 1), ("outer/inner", 1), ("next", 1)]


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


def test_each_stage_is_followed_by_those_inside_it() -> None:
    assert ledger_rows(ENTRIES) == ROWS


def test_several_ledgers_are_added_up() -> None:
    doubled = ledger_rows([*ENTRIES, *ENTRIES])
    assert [(row.calls, row.total_ms) for row in doubled] == [(2 * row.calls, 2 * row.total_ms) for row in ROWS]
    assert [(row.mean_ms, row.percent_of_parent) for row in doubled] == [
        (row.mean_ms, row.percent_of_parent) for row in ROWS
    ]


def test_what_has_no_figures_yet_and_what_lost_its_parent_is_shown_all_the_same() -> None:
    rows = ledger_rows([LedgerEntry("round", "", 0, 0.0), LedgerEntry("draft", "round", 0, 0.0)])
    assert [(row.mean_ms, row.percent_of_parent) for row in rows] == [(0, None), (0, None)]
    assert ledger_rows([LedgerEntry("draft", "gone", 1, 2.0)])[0].depth == 0
    assert ledger_rows([]) == ()


def test_the_csv_can_be_read_back() -> None:
    header, *lines = csv.reader(io.StringIO(ledger_csv(ROWS)))
    assert header == ["name", "depth", "calls", "mean_ms", "total_ms", "percent_of_parent", "parent"]
    assert lines[0] == ["round", "0", "4", "20.0", "80.0", "", ""]
    assert lines[2] == ["lookup", "2", "2", "2.5", "5.0", "25.0", "round/draft"]
    assert len(lines) == len(ROWS)


def test_the_note_says_whether_times_are_exact() -> None:
    assert ledger_note(exact=True).startswith("Exact times")
    assert ledger_note(exact=False).startswith("Host-side times")


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


@pytest.mark.parametrize("mode", [Mode.LOOKUP, Mode.OFF])
def test_exact_times_cost_waits_and_change_nothing_else(mode: Mode) -> None:
    exact, quick = statistics_of(mode, True), statistics_of(mode, False)
    assert exact.host_syncs > quick.host_syncs
    assert (exact.generated_tokens, exact.rounds, exact.accepted) == (
        quick.generated_tokens,
        quick.rounds,
        quick.accepted,
    )


def test_settling_waits_only_where_exact_times_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(mx, "eval", lambda *arrays: waited.append(len(arrays)))
    ledger = Ledger()
    ledger.synchronize(mx.array(1))
    assert waited == []
    ledger.exact = True
    ledger.synchronize(mx.array(1), None)
    assert waited == [2]
    assert (ledger.take_waits(), ledger.take_waits()) == (1, 0)
