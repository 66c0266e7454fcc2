"""The reply's tokens and times, and the memory that model and context take."""

from PySide6.QtWidgets import QProgressBar

from rdchat.inference.api.events import FinishReason, ModelInfo
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.theme import Theme
from rdchat.ui.speed.sections import Section

_FEW_TOKENS = 8  # a prefill shorter than this is one call, and its rate says nothing
_WHY_ENDED = "Why the reply ended."


class ReplySection(Section):
    """Counts and times of the reply and of reading the prompt."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Reply")
        self.tokens = self.add_figure("Tokens written", definitions.TOKENS_WRITTEN)
        self.prompt = self.add_figure("Prompt tokens", "Tokens of the whole conversation that the model was given.")
        self.cached = self.add_figure(
            "Kept from before", "Prompt tokens that were in the cache already and were not read again."
        )
        self.prefill = self.add_figure(
            "Prefill",
            "Prompt tokens read a second, until the first token is known. Tokens kept from the turn before do not "
            "count.",
        )
        self.ttft = self.add_figure("Time to first token", definitions.TTFT)
        self.decode_time = self.add_figure("Decode time", definitions.DECODE_TIME)
        self.finish = self.add_figure("Ended", _WHY_ENDED)

    def show_statistics(self, statistics: Statistics) -> None:
        self.tokens.show_value(formatting.count(statistics.generated_tokens))
        self.prompt.show_value(formatting.count(statistics.prompt_tokens))
        self.cached.show_value(formatting.count(statistics.cached_prompt_tokens))
        read = statistics.prompt_tokens - statistics.cached_prompt_tokens
        prefill = formatting.rate(statistics.prefill_tps if read >= _FEW_TOKENS else None)
        self.prefill.show_value(prefill if prefill == formatting.NONE else f"{prefill} tokens/s")
        self.ttft.show_value(formatting.duration(statistics.ttft_ms))
        self.decode_time.show_value(formatting.duration(statistics.decode_ms))

    def show_finish(self, reason: FinishReason | None) -> None:
        self.finish.show_value(formatting.FINISH_WORDS[reason] if reason else formatting.NONE)
        self.finish.define(f"{_WHY_ENDED} {formatting.FINISH_REASONS[reason] if reason else ''}".strip())


class MemorySection(Section):
    """The context in use, and memory."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Memory")
        self._used = self._limit = 0
        self.context = self.add_figure(
            "Context", f"{definitions.CONTEXT} The second number is the most that they may be together."
        )
        self.context_bar = self.add(QProgressBar(textVisible=False, maximum=1000))
        self.context_bar.setFixedHeight(6)
        self.context_bar.setAccessibleName("Context used")
        self.weights = self.add_figure("Weights", "Memory that the model's weights take.")
        self.peak = self.add_figure("Peak memory", definitions.PEAK_MEMORY)

    def show_model(self, model: ModelInfo | None) -> None:
        self._limit = model.context_length if model else 0
        self.weights.show_value(formatting.memory(model.weights_bytes if model else 0))
        self._show_context()

    def show_statistics(self, statistics: Statistics) -> None:
        self._used = statistics.context_tokens
        self.peak.show_value(formatting.memory(statistics.peak_memory_bytes))
        self._show_context()

    def _show_context(self) -> None:
        self.context.show_value(f"{self._used:,} of {self._limit:,}" if self._limit else formatting.NONE)
        self.context_bar.setValue(min(round(self._used / self._limit * 1000), 1000) if self._limit else 0)
