"""How the drafts of a reply fared: what was offered, what was accepted, and what verifying it took."""

from collections.abc import Sequence

from rdchat.inference.api.reply_statistics import Statistics
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import TIGHT, Theme
from rdchat.ui.speed.bars import Bar, BarChart
from rdchat.ui.speed.sections import Section


class DraftFigures(Section):
    """Figures and two small charts; all are dashes or empty where nothing was drafted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Drafts")
        self.rounds = self.add_figure("Rounds", definitions.ROUNDS)
        self.nodes = self.add_figure("Verified nodes per round", definitions.NODES)
        self.syncs = self.add_figure("Host syncs per round", definitions.HOST_SYNCS)
        self.lengths = self._add_chart("Accepted length", definitions.LENGTHS)
        self.positions = self._add_chart("Acceptance by position, %", definitions.POSITIONS)

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.add(ThemedLabel(self.theme, name, "muted"))
        set_tip(heading, definition)
        heading.setContentsMargins(0, TIGHT, 0, 0)
        return self.add(BarChart(self.theme, name, definition))

    def show_statistics(self, statistics: Statistics) -> None:
        rounds, calls = statistics.rounds, statistics.target_calls
        self.rounds.show_value(formatting.count(rounds))
        self.nodes.show_value(formatting.decimal(statistics.verified_nodes / rounds if rounds else None))
        self.syncs.show_value(formatting.decimal(statistics.host_syncs / calls if calls and rounds else None))
        self.lengths.show_bars(_length_bars(statistics) if rounds else ())
        self.positions.show_bars(_position_bars(statistics.acceptance_by_position))


def _length_bars(statistics: Statistics) -> list[Bar]:
    """Return a bar for each accepted length that was possible, those that no round reached included."""
    missing = len(statistics.drafted_lengths) - len(statistics.accepted_lengths)
    counts = (*statistics.accepted_lengths, *(0 for _ in range(missing)))
    whole, most = sum(counts), max(counts)
    return [
        Bar(
            str(length),
            rounds / most,
            f"{rounds:,}",
            f"{length} accepted: {rounds:,} of {formatting.counted(whole, 'round')}, "
            f"{formatting.percent(rounds / whole)}",
        )
        for length, rounds in enumerate(counts)
    ]


def _position_bars(shares: Sequence[float]) -> list[Bar]:
    return [
        Bar(str(place), share, f"{share * 100:.0f}", f"Position {place}: {formatting.percent(share)} accepted")
        for place, share in enumerate(shares, start=1)
    ]
