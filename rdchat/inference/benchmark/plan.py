"""What a benchmark is asked to do: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass, field

from rdchat.errors import InvalidSettingError
from rdchat.inference.prompt_files import Prompt
from rdchat.inference.requests import DraftSettings, Dtype, Mode


@dataclass(frozen=True, slots=True)
class BenchCell:
    """One setting that is measured.

    Attributes:
        draft: How it is drafted; `profile` and `trace` are off.
        temperature: 0 is greedy.
        dtype: Precision of the model's weights.
    """

    draft: DraftSettings = field(default_factory=DraftSettings)
    temperature: float = 0.0
    dtype: Dtype = Dtype.AUTO

    @property
    def plain(self) -> bool:
        return self.draft.mode is Mode.OFF


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """A benchmark.

    Attributes:
        cells: What is compared. Plain decoding is run beside them at every temperature and dtype, whether it is listed
            or not.
        prompts: Questions, each with its group.
        max_tokens: The most tokens of a reply.
        trials: Runs of each cell on each prompt.
        seed: Of every reply; the same for all cells.
        mlx_lm: Whether stock `mlx_lm.stream_generate` is run as the outside baseline.

    Raises:
        InvalidSettingError: If there is nothing to run.
    """

    cells: tuple[BenchCell, ...]
    prompts: tuple[Prompt, ...]
    max_tokens: int = 128
    trials: int = 3
    seed: int = 0
    mlx_lm: bool = True

    def __post_init__(self) -> None:
        if not self.cells or not self.prompts:
            raise InvalidSettingError("There is nothing to measure.", "Name at least one mode and one prompt.")
        for name, value, least in (("max-tokens", self.max_tokens, 2), ("trials", self.trials, 1)):
            if value < least:
                raise InvalidSettingError(f"{name} {value} is out of range: it must be at least {least}.")
