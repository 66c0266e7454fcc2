"""How the drafts of a reply fared: what was offered, what was accepted, and what verifying it took."""

from collections.abc import Sequence

from rdchat.inference.statistics import Statistics
from rdchat.ui import figures
from rdchat.ui.labels import ThemedLabel, wrapped
from rdchat.ui.speed.bars import Bar, BarChart
from rdchat.ui.speed.rows import Section
from rdchat.ui.theme import TIGHT, Theme

_LENGTHS = (
    "Rounds by accepted length: drafted tokens that a round accepted. The one token that the model itself adds in each "
    "round is not counted."
)
_POSITIONS = "Of the rounds that offered a token at this place in the draft, the share that accepted it."


class DraftFigures(Section):
    """Figures and two small charts; all are dashes or empty where nothing was drafted."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Drafts")
        self.acceptance = self.add_figure(
            "Acceptance rate", "Drafted tokens that were accepted, of those that were offered along the chosen path."
        )
        self.per_call = self.add_figure(
            "Tokens per target call",
            "Tokens written for each call of the model while decoding; 1 in plain decoding.",
        )
        self.rounds = self.add_figure("Rounds", "Calls of the model that verified a draft; none in plain decoding.")
        self.nodes = self.add_figure(
            "Verified nodes per round",
            "Tokens that a call of the model verified, the one it had chosen before included; padding does not count.",
        )
        self.syncs = self.add_figure(
            "Host syncs per round", "Times the processor waited for the device, for each call of the model."
        )
        self.lengths = self._add_chart("Accepted length", _LENGTHS)
        self.positions = self._add_chart("Acceptance by position, %", _POSITIONS)

    def _add_chart(self, name: str, definition: str) -> BarChart:
        heading = self.add(ThemedLabel(self.theme, name, "muted"))
        heading.setToolTip(wrapped(definition))
        heading.setContentsMargins(0, TIGHT, 0, 0)
        return self.add(BarChart(self.theme, name, definition))

    def show_statistics(self, statistics: Statistics) -> None:
        rounds, calls = statistics.rounds, statistics.target_calls
        self.acceptance.show_value(figures.percent(statistics.acceptance_rate))
        self.per_call.show_value(figures.decimal(statistics.tokens_per_target_call))
        self.rounds.show_value(figures.count(rounds))
        self.nodes.show_value(figures.decimal(statistics.verified_nodes / rounds if rounds else None))
        self.syncs.show_value(figures.decimal(statistics.host_syncs / calls if calls and rounds else None))
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
            f"{length} accepted: {rounds:,} of {figures.counted(whole, 'round')}, {figures.percent(rounds / whole)}",
        )
        for length, rounds in enumerate(counts)
    ]


def _position_bars(shares: Sequence[float]) -> list[Bar]:
    return [
        Bar(str(place), share, f"{share * 100:.0f}", f"Position {place}: {figures.percent(share)} accepted")
        for place, share in enumerate(shares, start=1)
    ]
