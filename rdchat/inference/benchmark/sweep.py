"""Cells out of lists of settings, for the command line and the window alike. No MLX and no Qt here."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.bench_plan import BenchCell
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every combination of these, each mode with the settings that mean something to it.

    Attributes:
        modes: In the order they are reported.
        beam_widths, beam_lengths: For the drafter head; not read without it.
        draft_tokens: For a draft model and prompt lookup; not read without them.
        temperatures: 0 is greedy.
        dtypes: Precisions of the model's weights.
        draft_model: For `speculative`, and for `auto` to choose from.
        drafters: For `drafter`, and for `auto` to choose from; None is the one made for the target.
    """

    modes: tuple[Mode, ...]
    beam_widths: tuple[int, ...] = (4,)
    beam_lengths: tuple[int, ...] = (5,)
    draft_tokens: tuple[int, ...] = (4,)
    temperatures: tuple[float, ...] = (0.0,)
    dtypes: tuple[Dtype, ...] = (Dtype.AUTO,)
    draft_model: str | None = None
    drafters: tuple[str | None, ...] = (None,)

    def cells(self) -> tuple[BenchCell, ...]:
        """Return the cells, grouped by precision, then temperature, then mode.

        Raises:
            InvalidSettingError: If no mode or no precision is named, or a value is out of range.
        """
        missing = [name for name, given in (("mode", self.modes), ("precision", self.dtypes)) if not given]
        if missing:
            raise InvalidSettingError("There is nothing to measure.", f"Name at least one {' and one '.join(missing)}.")
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
