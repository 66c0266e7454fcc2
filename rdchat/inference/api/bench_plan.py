"""The plan of a benchmark: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass, field

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode, SamplingParams, check_seed, require, size_words


@dataclass(frozen=True, slots=True)
class BenchCell:
    """One setting that is measured.

    Raises:
        InvalidSettingError: If the temperature is out of range.
    """

    # Draft settings; `profile` and `trace` are off.
    draft: DraftSettings = field(default_factory=lambda: DraftSettings(mode=Mode.OFF))
    temperature: float = 0.0  # 0 is greedy
    dtype: Dtype = Dtype.AUTO  # precision of the model's weights

    def __post_init__(self) -> None:
        SamplingParams(temperature=self.temperature)  # validates

    @property
    def plain(self) -> bool:
        return self.draft.mode is Mode.OFF

    @property
    def shape(self) -> dict[str, int]:
        """Size of its drafts: beam width and length, or draft tokens, or nothing."""
        match self.draft.mode:
            case Mode.DRAFTER:
                return {"beam_width": self.draft.beam_width, "beam_length": self.draft.beam_length}
            case Mode.SPECULATIVE | Mode.LOOKUP:
                return {"draft_tokens": self.draft.draft_tokens}
            case _:
                return {}

    @property
    def words(self) -> str:
        """Mode and shape for people, such as `Drafter head, 4 beams of 5 tokens` or `Prompt lookup, 4 tokens`."""
        return ", ".join([self.draft.mode.words, *filter(None, [size_words(*self.shape.values())])])


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """A benchmark.

    Raises:
        InvalidSettingError: If there is nothing to run, or a number is out of range.
    """

    # Settings to compare. Plain decoding runs at each of their temperatures and dtypes, whether it is listed or not.
    cells: tuple[BenchCell, ...]
    prompts: tuple[Prompt, ...]  # questions, each with its group
    max_tokens: int = 128  # the most tokens of a reply
    trials: int = 3  # runs of each cell on each prompt
    seed: int = 0  # of every reply; the same for all cells
    mlx_lm: bool = True  # whether stock `mlx_lm.stream_generate` is run as the outside baseline
    # Whether the rounds of each drafted run are repeated, to measure what they cost beyond draft and verify.
    overhead: bool = True
    earlier_file: str = ""  # a file of `drafting.reply_store` that drafts may come from; empty for none
    turn: int = 0  # shifts which cell comes first, so that benchmarks repeated by hand alternate too
    streams: bool = False  # whether the text of a reply is reported while it is written

    def __post_init__(self) -> None:
        if not self.cells or not self.prompts:
            raise InvalidSettingError("There is nothing to measure.", "Name at least one mode and one prompt.")
        require(self.max_tokens >= 2, "max-tokens", self.max_tokens, "at least 2")
        require(self.trials >= 1, "trials", self.trials, "at least 1")
        check_seed(self.seed)

    @property
    def baselines(self) -> tuple[BenchCell, ...]:
        """Plain decoding at every temperature and precision among the cells, in order of appearance."""
        kinds = dict.fromkeys((cell.temperature, cell.dtype) for cell in self.cells)
        plain = DraftSettings(mode=Mode.OFF)
        return tuple(BenchCell(plain, temperature, dtype) for temperature, dtype in kinds)

    @property
    def all_cells(self) -> tuple[BenchCell, ...]:
        """The baselines, then the cells; `BenchRun.cell` is an index into it."""
        return self.baselines + self.cells

    def baseline_of(self, cell: BenchCell) -> int:
        """Return the index in `all_cells` of the plain decoding to compare a cell with."""
        return next(
            index
            for index, plain in enumerate(self.baselines)
            if (plain.temperature, plain.dtype) == (cell.temperature, cell.dtype)
        )

    def sampling(self, cell: BenchCell) -> SamplingParams:
        """Return a cell's sampling: the app's default filters at the cell's temperature."""
        return SamplingParams(temperature=cell.temperature, max_tokens=self.max_tokens)

    @property
    def runs(self) -> int:
        """Number of replies, those of mlx-lm included."""
        outside = len(self.baselines) if self.mlx_lm else 0
        return (len(self.all_cells) + outside) * len(self.prompts) * self.trials
