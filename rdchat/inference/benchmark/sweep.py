"""The default prompts of a benchmark, and the cells for lists of settings. No MLX and no Qt here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.bench_plan import BenchCell
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode

_NOTES = (
    "The town library will close for two weeks in August while its roof is repaired. Books that fall due in that time "
    "may be returned until the tenth of September. The reading room in the town hall stays open, and newspapers are "
    "kept there. The children's summer club meets in the school on Tuesdays and Fridays, from nine to noon."
)

EVERYDAY_PROMPTS = (
    Prompt("Explain in a few sentences why the sky is blue.", "explaining"),
    Prompt("Write a Python function that checks whether a number is prime, with a short explanation.", "code"),
    Prompt("Tell me a short story about a lighthouse keeper and a whale.", "story"),
    Prompt("List ten things to pack for a week of hiking, each with half a sentence why.", "list"),
    Prompt(f"Summarise this notice in two sentences.\n\n{_NOTES}", "summary"),
    Prompt(f"Copy this notice word for word, and correct nothing.\n\n{_NOTES}", "copy"),
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All combinations of these settings, where they apply to the mode."""

    modes: tuple[Mode, ...]  # in the order they are reported
    # `beam_widths`, `beam_lengths`: For the drafter head; otherwise not used.
    beam_widths: tuple[int, ...] = (4,)
    beam_lengths: tuple[int, ...] = (5,)
    draft_tokens: tuple[int, ...] = (4,)  # for a draft model and prompt lookup; otherwise not used
    temperatures: tuple[float, ...] = (0.0,)  # 0 is greedy
    dtypes: tuple[Dtype, ...] = (Dtype.AUTO,)  # precisions of the model's weights
    draft_model: str | None = None  # for `speculative`, and for `auto` to choose from
    # For `drafter`, and for `auto` to choose from; None is the one made for the target.
    drafters: tuple[str | None, ...] = (None,)

    def cells(self) -> tuple[BenchCell, ...]:
        """Return the cells, grouped by precision, then temperature, then mode.

        Raises:
            InvalidSettingError: If no mode or no precision is named, or a value is out of range.
        """
        missing = [name for name, given in (("mode", self.modes), ("precision", self.dtypes)) if not given]
        if missing:
            raise InvalidSettingError(
                "There is nothing to measure.", f"Choose at least one {' and one '.join(missing)}."
            )
        return tuple(
            BenchCell(draft, temperature, dtype)
            for dtype, temperature, mode in product(self.dtypes, self.temperatures, self.modes)
            for draft in self._drafts(mode)
        )

    def _drafts(self, mode: Mode) -> Iterator[DraftSettings]:
        if mode is Mode.DRAFTER:
            for drafter, width, length in product(self.drafters, self.beam_widths, self.beam_lengths):
                yield DraftSettings(mode, drafter=drafter, beam_width=width, beam_length=length)
        elif mode in (Mode.SPECULATIVE, Mode.LOOKUP):
            model = self.draft_model if mode is Mode.SPECULATIVE else None
            for tokens in self.draft_tokens:
                yield DraftSettings(mode, draft_model=model, draft_tokens=tokens)
        elif mode is Mode.AUTO:
            for drafter in self.drafters:
                yield DraftSettings(mode, draft_model=self.draft_model, drafter=drafter)
        else:
            yield DraftSettings(mode)
