"""How fast the reply is written, beside what plain decoding would reach."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QWidget

from rdchat.inference.api.reply_statistics import AutoChoice, Statistics
from rdchat.inference.api.requests import Mode
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel, wrapped
from rdchat.ui.look.theme import SMALL, TIGHT, Theme
from rdchat.ui.speed.section import Section
from rdchat.ui.speed.sparkline import Sparkline

_FEW_TOKENS = 8  # a prefill shorter than this is one call, and its rate says nothing
_CHOICE_LINES = 3
_ALIKE = 0.02  # a ratio this near to 1 is neither a gain nor a loss


class SpeedSection(Section):
    """Decode, prefill and time to first token, always apart."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Speed")
        self.decode = ThemedLabel(theme, formatting.NONE, points_more=12, bold=True, tabular=True)
        self.ratio = ThemedLabel(theme, "", points_more=3, bold=True, tabular=True)
        self.add(self._build_head())
        self.plain = self.add_figure("Plain decoding", definitions.PLAIN)
        self.choice = self.add(ThemedLabel(theme, "", "muted", -1))
        self.choice.setWordWrap(True)
        self.choice.setAlignment(Qt.AlignmentFlag.AlignTop)
        room = self.choice.fontMetrics().lineSpacing() * _CHOICE_LINES
        self.choice.setMinimumHeight(room)  # it changes many times in a reply, and what stands below keeps its place
        self.choice.setToolTip(
            wrapped("What the automatic mode does at this moment, and why. 4 x 5 is beam width 4 and beam length 5.")
        )
        self.choice.hide()
        self.sparkline = self.add(Sparkline(theme))
        self.sparkline.setContentsMargins(0, 0, 0, SMALL)
        self.sparkline.setToolTip(
            wrapped("Decode speed during this reply, from zero up; each point is a quarter of a second.")
        )
        self.prefill = self.add_figure(
            "Prefill",
            "Prompt tokens read a second, until the first token is known. Tokens kept from the turn before do not "
            "count.",
        )
        self.ttft = self.add_figure("Time to first token", definitions.TTFT)
        self.decode_time = self.add_figure("Decode time", definitions.DECODE_TIME)

    def _build_head(self) -> QWidget:
        head = QWidget()
        row = QHBoxLayout(head)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(TIGHT + 2)
        unit = ElidedLabel(self.theme, "tokens/s decode", "muted")
        bottom = Qt.AlignmentFlag.AlignBottom
        row.addWidget(self.decode, 0, bottom)
        row.addWidget(unit, 1, bottom)
        row.addWidget(self.ratio, 0, bottom)
        unit.setContentsMargins(0, 0, 0, 4)
        self.ratio.setContentsMargins(0, 0, 0, 2)
        definition = wrapped(definitions.SPEED)
        self.decode.setToolTip(definition)
        unit.setToolTip(definition)
        self.ratio.setToolTip(wrapped(definitions.RATIO))
        return head

    def show_statistics(self, statistics: Statistics) -> None:
        decode = formatting.rate(statistics.decode_tps)
        self.decode.setText(decode)
        self.decode.setAccessibleName(f"Decode: {decode} tokens a second")
        self.decode.set_color("muted" if statistics.decode_tps is None else "text")
        self._show_ratio(statistics.speedup)
        self.plain.show_value(_with_unit(formatting.rate(statistics.plain_tps)))
        choice = statistics.choice
        self.choice.setText(f"{_chosen(choice)}. {choice.words}" if choice else "")
        self.choice.setVisible(choice is not None)
        read = statistics.prompt_tokens - statistics.cached_prompt_tokens
        self.prefill.show_value(_with_unit(formatting.rate(statistics.prefill_tps if read >= _FEW_TOKENS else None)))
        self.ttft.show_value(formatting.duration(statistics.ttft_ms))
        self.decode_time.show_value(formatting.duration(statistics.decode_ms))

    def _show_ratio(self, ratio: float | None) -> None:
        self.ratio.setVisible(ratio is not None)
        if ratio is not None:
            self.ratio.setText(formatting.ratio(ratio))
            self.ratio.setAccessibleName(f"{ratio:.2f} times as fast as plain decoding")
            self.ratio.set_color("success" if ratio > 1 + _ALIKE else "warning" if ratio < 1 - _ALIKE else "text")


def _with_unit(rate: str) -> str:
    return rate if rate == formatting.NONE else f"{rate} tokens/s"


def _chosen(choice: AutoChoice) -> str:
    """Return what the automatic mode does: `Auto: Recurrent, 4 x 5` or `Auto: Prompt lookup, 6 tokens`."""
    mode = Mode(choice.mode)
    if mode is Mode.OFF:
        return "Auto: plain decoding"
    tokens = formatting.counted(choice.length - 1, "token")
    shape = f"{choice.width} x {choice.length}" if mode is Mode.RECURRENT else tokens
    return f"Auto: {mode.words}, {shape}"
