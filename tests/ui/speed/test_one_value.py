"""Law: what has one name has one value everywhere; parts sum to their total, and a mean times its count is its time."""

import re
from collections import Counter
from typing import NamedTuple

from hypothesis import given, settings, strategies as some
from pytestqt.qtbot import QtBot

from rdchat.commands.ask import statistics_report
from rdchat.inference.api import (
    FIGURES as BENCH_FIGURES,
    PATH_SEPARATOR,
    BenchCell,
    BenchPlan,
    BenchResult,
    BenchRun,
    DraftSettings,
    LedgerEntry,
    Mode,
    Prompt,
    Spent,
    Stage,
    Statistics,
)
from rdchat.inference.api.ledger_view import REPLY, grouped_entries, ledger_rows
from rdchat.ui.speed.figures import FIGURES, FigureSource
from rdchat.ui.speed.sections import TimeRows, TimeShares
from rdchat.ui.style import NONE, STAGES, Theme

# The figures of a benchmark that the panel has too, by the panel's names.
_SHARED = {kind.title: name for name, kind in BENCH_FIGURES.items() if kind.title in FIGURES}


class _Round(NamedTuple):
    """A round of a made-up reply: its draft's depth and nodes, who proposed what was kept, and how it was timed."""

    drafted: int
    more_nodes: int
    kept: tuple[str, ...]
    ahead: bool


@some.composite
def _rounds(draw: some.DrawFn) -> _Round:
    drafted = draw(some.integers(0, 6))
    kept = draw(some.lists(some.sampled_from(["chat", "replies", "phrases", "drafter"]), max_size=drafted))
    return _Round(drafted, draw(some.integers(0, 9)) if drafted else 0, tuple(kept), draw(some.booleans()))


@some.composite
def _replies(draw: some.DrawFn) -> Statistics:
    rounds = draw(some.lists(_rounds(), max_size=12))
    steps = draw(some.integers(0, 9))
    calls = Counter[str]()
    times = Counter[str]()

    def record(path: str) -> float:
        """Record a call of a stage that has no parts."""
        ms = draw(some.floats(0.5, 900, width=32))
        above = path.split(PATH_SEPARATOR)
        calls[path] += 1
        for depth in range(1, len(above) + 1):
            times[PATH_SEPARATOR.join(above[:depth])] += ms
        return ms

    record(Stage.TOKENIZE)
    record(Stage.PREFILL)
    record(f"{Stage.FIRST}/{Stage.CHOOSE}")
    calls[Stage.FIRST] += 1
    written = 0.0
    for each in rounds:
        parts = [f"{Stage.DRAFT}/{Stage.LOOKUP}", Stage.ACCEPT, Stage.COMMIT, Stage.VERIFY]
        choose = [Stage.QUEUE, Stage.DRAFT_AHEAD, Stage.WAIT_WITH_DRAFT] if each.ahead else [Stage.WAIT]
        for part in (*parts, *(f"{Stage.CHOOSE}/{stage}" for stage in choose)):
            written += record(f"{Stage.ROUND}/{part}")
        for around in ("", f"/{Stage.DRAFT}", f"/{Stage.CHOOSE}"):
            calls[f"{Stage.ROUND}{around}"] += 1
    for _ in range(steps):
        for path in (f"{Stage.QUEUE_STEP}/{Stage.FORWARD}", f"{Stage.PLAIN_WAIT}/{Stage.WAIT}"):
            written += record(path)
            calls[path.split(PATH_SEPARATOR)[0]] += 1
    sources = Counter(source for each in rounds for source in each.kept)
    drafted = Counter(each.drafted for each in rounds)
    kept = Counter(len(each.kept) for each in rounds)
    return Statistics(
        prompt_tokens=40,
        generated_tokens=1 + len(rounds) + steps + sources.total(),
        ttft_ms=1.0,
        decode_ms=written,
        rounds=len(rounds),
        drafted=sum(each.drafted for each in rounds),
        accepted=sources.total(),
        from_chat=sources["chat"],
        from_replies=sources["replies"],
        from_phrases=sources["phrases"],
        target_calls=len(rounds) + steps,
        verified_nodes=sum(1 + each.drafted + each.more_nodes for each in rounds),
        host_syncs=len(rounds) + steps,
        drafted_lengths=tuple(drafted[depth] for depth in range(max(drafted, default=-1) + 1)),
        accepted_lengths=tuple(kept[length] for length in range(max(kept, default=-1) + 1)),
        ledger=tuple(
            LedgerEntry(path.rpartition("/")[2], path.rpartition("/")[0], calls[path], times[path])
            for path in sorted(times)
        ),
    )


def _shown(statistics: Statistics, name: str) -> float:
    """Return the number that the panel shows; 0 for a dash."""
    text = FIGURES[name](FigureSource(statistics))
    number = re.match(r"[\d,.]+", text)
    return float(number[0].replace(",", "")) if number else 0.0


def _near(one: float, other: float, digit: float) -> bool:
    """Return whether two numbers are the same up to the rounding of a shown digit."""
    return abs(one - other) <= digit * 0.51 + 1e-9 * abs(other)


@settings(max_examples=20)
@given(_replies())
def test_the_panel_adds_up(reply: Statistics) -> None:
    parts = "Prompt lookup, this chat", "Prompt lookup, earlier replies", "Common phrases", "Drafter or draft model"
    kept = sum(_shown(reply, name) for name in parts)
    assert kept == reply.accepted
    if reply.drafted >= 20:
        assert _near(_shown(reply, "Acceptance") / 100, kept / reply.drafted, 0.01)
    if reply.rounds:
        assert _near(_shown(reply, "Kept per step") * reply.target_calls, kept, 0.01 * reply.target_calls)
        each = 0.1 if _shown(reply, "Tokens per step") >= 10 else 0.01
        assert _near(1 + _shown(reply, "Kept per step"), _shown(reply, "Tokens per step"), 2 * each), "one is its own"
        assert _shown(reply, "Checked per step") >= _shown(reply, "Tokens per step") - 0.06, "what is kept was checked"
        longest = _shown(reply, "Drafted per step") * reply.target_calls
        assert _near(longest, reply.drafted, (0.1 if longest >= 10 * reply.target_calls else 0.01) * reply.target_calls)


@settings(max_examples=20)
@given(_replies())
def test_a_benchmark_and_json_have_the_panels_figures(reply: Statistics) -> None:
    plan = BenchPlan((BenchCell(DraftSettings(Mode.LOOKUP)),), (Prompt("a"),), trials=1)
    figures = BenchResult(plan, (BenchRun(1, 0, "", 0, (1,), ("a",), (0.0,), reply),), {}).reports[0].figures
    assert {"Acceptance", "Tokens per step", "Checked per step", "Waits per step"} <= _SHARED.keys()
    for name, key in _SHARED.items():
        figure = figures[key]
        text = FIGURES[name](FigureSource(reply))
        if figure is not None and text != NONE:
            factor = 100 if "%" in text else 1
            digits = len(text.partition(".")[2].split()[0]) if "." in text else 0
            assert _near(_shown(reply, name), figure.median * factor, 10.0**-digits), name
    report = statistics_report(reply)
    assert report["decode_tps"] == figures["decode_tps"].median if figures["decode_tps"] else True
    assert (report["speedup"], report["speedup_range"]) == (reply.speedup, reply.speedup_range)


@settings(max_examples=20)
@given(some.lists(_replies(), min_size=1, max_size=3))
def test_a_row_of_the_ledger_counts_what_it_names(replies: list[Statistics]) -> None:
    rows = ledger_rows(grouped_entries(entry for reply in replies for entry in reply.ledger))
    rounds, calls = (sum(getattr(reply, name) for reply in replies) for name in ("rounds", "target_calls"))
    counts = {
        REPLY: len(replies),
        Spent.READING: len(replies),
        Spent.DRAFTING: rounds,
        Spent.CHECKING: rounds,
        Spent.WRITING: calls - rounds,
        Spent.OTHER: calls,
        Stage.VERIFY.row: calls,
        Stage.WAIT.row: rounds,
        Stage.ACCEPT.row: rounds,
        Stage.COMMIT.row: rounds,
    }
    for row in rows:
        if row.name in counts:
            assert row.calls == counts[row.name], row
        assert row.mean_ms is None or abs(row.mean_ms * row.calls - row.total_ms) < 1e-6 * row.total_ms + 1e-9
        parts = [part for part in rows if part.parent == (f"{row.parent}/{row.name}" if row.parent else row.name)]
        assert not parts or abs(sum(part.total_ms for part in parts) - row.total_ms) < 1e-6 * row.total_ms + 1e-9


def test_the_bar_and_the_rows_of_a_reply_have_the_same_shares(qtbot: QtBot, theme: Theme) -> None:
    shares = TimeShares(theme)
    times = TimeRows(theme)
    for part in (shares, times):
        qtbot.addWidget(part)

    @settings(max_examples=20)
    @given(_replies())
    def check(reply: Statistics) -> None:
        shares.show_statistics(reply)
        times.show_statistics(reply)
        named = {row.name for row in times.rows.values()}
        for part in shares.bar.accessibleDescription().split("; "):
            name, share = part.split(": ")
            spent = next(spent for spent in Spent if STAGES[spent][0] == name)
            assert shares.rows[spent].value.text() == share
            assert name in named

    check()
