"""The time ledger for people: each stage's own time is assigned to what it was spent on."""

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as some

from rdchat.inference.api import LedgerEntry, Spent, Stage, Statistics
from rdchat.inference.api.ledger_view import REPLY, grouped_entries, ledger_rows, spent_ms


def ledger(*stages: tuple[str, int, float]) -> tuple[LedgerEntry, ...]:
    """Return entries of paths, calls and milliseconds."""
    return tuple(LedgerEntry(path.rpartition("/")[2], path.rpartition("/")[0], calls, ms) for path, calls, ms in stages)


ROUNDS = ledger(
    ("template and tokenize", 1, 2.0),
    ("prefill", 2, 20.0),
    ("prefill of the drafter", 1, 5.0),
    ("prefill of the drafter/prefill", 2, 4.0),
    ("first token", 1, 1.0),
    ("first token/detokenize", 1, 0.5),
    ("round", 4, 100.0),
    ("round/draft", 4, 20.0),
    ("round/draft/beam search", 4, 8.0),
    ("round/draft/wait for the draft", 1, 10.0),
    ("round/verify", 4, 6.0),
    ("round/choose", 4, 70.0),
    ("round/choose/wait", 1, 20.0),
    ("round/choose/wait with draft", 3, 48.0),
    ("round/accept", 4, 2.0),
    ("round/accept/detokenize", 9, 1.0),
    ("round/commit", 4, 1.0),
    ("not measured", 1, 0.0),
)


def as_rows(recorded: tuple[LedgerEntry, ...]) -> list[tuple[int, str, int, float]]:
    return [(row.depth, row.name, row.calls, round(row.total_ms, 6)) for row in ledger_rows(grouped_entries(recorded))]


def test_a_reply_in_rounds() -> None:
    assert as_rows(ROUNDS) == [
        (0, "reply", 1, 128.0),
        (1, "reading", 1, 28.0),
        (2, "chat template and tokens", 1, 2.0),
        (2, "reading the prompt", 2, 20.0),
        (2, "reading by the drafter", 1, 5.0),
        (2, "first token", 1, 1.0),
        (1, "drafting", 4, 20.0),
        (2, "prepare drafts", 4, 2.0),
        (2, "beam search", 4, 8.0),
        (2, "wait for the draft", 1, 10.0),
        (1, "checking", 4, 68.0),
        (1, "other", 4, 12.0),
        (2, "prepare steps", 4, 9.0),
        (2, "accept", 4, 1.0),
        (2, "text", 9, 1.0),
        (2, "commit", 4, 1.0),
        (2, "not measured", 1, 0.0),
    ]


def test_stages_of_another_version_are_other_work_and_their_waits_are_writing() -> None:
    recorded = ledger(("new", 3, 9.0), ("new/wait", 3, 8.0), ("not measured", 1, 0.0))
    assert as_rows(recorded) == [
        (0, "reply", 0, 9.0),
        (1, "without draft", 3, 8.0),
        (1, "other", 0, 1.0),
        (2, "new", 3, 1.0),
        (2, "not measured", 1, 0.0),
    ]


def test_a_ledger_of_an_older_version_has_the_same_groups() -> None:
    """All waits had one name, exact ones too; the drafter's reading had none."""
    recorded = ledger(
        ("template and tokenize", 1, 2.0),
        ("shape", 1, 1.0),
        ("read", 1, 4.0),
        ("wait for token", 3, 9.0),
        ("wait for token/wait", 3, 9.0),
        ("queue step", 2, 20.0),
        ("queue step/forward", 2, 20.0),
        ("queue step/forward/wait", 2, 18.0),
        ("round", 2, 40.0),
        ("round/draft", 2, 10.0),
        ("round/draft/feed", 6, 5.0),
        ("round/draft/feed/wait", 6, 4.0),
        ("round/draft/queue", 2, 3.0),
        ("round/verify", 2, 30.0),
        ("round/verify/wait", 2, 28.0),
        ("not measured", 1, 0.0),
    )
    assert spent_ms(Statistics(ledger=recorded)) == {
        Spent.READING: 6.0,
        Spent.DRAFTING: 11.0,
        Spent.CHECKING: 28.0,
        Spent.WRITING: 27.0,
        Spent.OTHER: 4.0,
    }


@settings(max_examples=40)
@given(data=some.data())
def test_whatever_was_recorded_adds_up(data: some.DataObject) -> None:
    """Law: each nanosecond is in one row, and each level adds up to the one above, whatever the stages' names."""
    entries: list[LedgerEntry] = []

    def record(parent: str, depth: int) -> int:
        names = some.lists(some.sampled_from([*Stage, "of another version"]), unique=True, max_size=3)
        total = 0
        for name in data.draw(names if depth < 4 else some.just([])):
            at = len(entries)
            entries.append(LedgerEntry(name, parent, 1, 0.0))
            took = record(f"{parent}/{name}" if parent else str(name), depth + 1) + data.draw(some.integers(0, 9))
            entries[at] = LedgerEntry(name, parent, 1, took)
            total += took
        return total

    total = record("", 0)
    shown = ledger_rows(grouped_entries(entries))
    for depth in range(2) if shown else ():
        assert sum(row.total_ms for row in shown if row.depth == depth) == total
    for above, below in pairwise(shown):
        if (above.depth, below.depth) == (1, 2):
            parts = [row for row in shown if row.parent == f"{REPLY}/{above.name}"]
            assert sum(row.total_ms for row in parts) == above.total_ms


@pytest.mark.parametrize("stage", Stage)
def test_each_stage_has_one_place(stage: Stage) -> None:
    """A wait has it from the stage around it."""
    for outer, around in (("", None), ("round", Spent.CHECKING), ("round/draft", Spent.DRAFTING)):
        entry = LedgerEntry(stage, outer, 1, 5.0)
        expected = stage.spent or around or Spent.WRITING
        assert spent_ms(Statistics(ledger=(entry,))) == {expected: 5.0}


def test_nothing_recorded_is_nothing_shown() -> None:
    assert grouped_entries(()) == ()
    assert spent_ms(Statistics(ttft_ms=5.0)) == {}


def test_names_of_any_kind_in_a_damaged_store_are_read() -> None:
    for name in ("", "/", "wait", "queue", "draft", "draft/wait", "//draft//wait", "round/draft/", "rank/queue"):
        recorded = (LedgerEntry(name, "", 1, 1.0), LedgerEntry(name, name, 1, 9.0))
        assert grouped_entries(recorded)[0].name == "reply"
        assert all(ms >= 0 for ms in spent_ms(Statistics(ledger=recorded)).values())
