"""Runs of a benchmark with known figures."""

from rdchat.inference.api import MLX_LM, BenchCell, BenchPlan, BenchRun, DraftSettings, Dtype, Mode, Prompt, Statistics

OFF = BenchCell()
LOOKUP = BenchCell(DraftSettings(Mode.LOOKUP, draft_tokens=3))


def beam(width: int, length: int, dtype: Dtype = Dtype.AUTO, temperature: float = 0.0) -> BenchCell:
    return BenchCell(DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=length), temperature, dtype)


def plan(*cells: BenchCell, groups: tuple[str, ...] = ("",), trials: int = 1) -> BenchPlan:
    return BenchPlan(cells, tuple(Prompt(f"prompt {n}", group) for n, group in enumerate(groups)), trials=trials)


def run(
    of: BenchPlan, cell: int, tps: float, *, prompt: int = 0, trial: int = 0, baseline: int = 0, **more: object
) -> BenchRun:
    """Return a run of 101 tokens at so many a second; a drafted one has 50 target calls of which 40 drafted tokens."""
    plain = cell == MLX_LM or of.all_cells[cell].plain
    statistics = Statistics(
        prompt_tokens=7,
        generated_tokens=101,
        prefill_ms=20.0,
        ttft_ms=21.0,
        decode_ms=100_000 / tps,
        rounds=0 if plain else 50,
        drafted=0 if plain else 80,
        accepted=0 if plain else 50,
        target_calls=100 if plain else 50,
        verified_nodes=0 if plain else 200,
        host_syncs=100 if plain else 75,
    )
    return BenchRun(
        cell, prompt, of.prompts[prompt].group, trial, (1, 2), (), (), statistics, baseline=baseline, **more
    )  # type: ignore[arg-type]
