"""Compares a trained drafter with the one that was used before, on everyday questions that neither was trained on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams
from rdchat.inference.api.training import ComparedGroup, Comparison
from rdchat.inference.benchmark.draft_counts import CountsFile, Result, draft_name, report
from rdchat.inference.benchmark.evaluation import Evaluation
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import is_hub_id, shown_name
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel

DRAFT = DraftSettings(Mode.DRAFTER, beam_width=4, beam_length=5, lookup_branch=False)
_TOKENS = 64  # of a reply


def compare_drafters(
    model: LoadedModel, new: Path, old: str | None, kept: Path, tell: Callable[[float], None]
) -> Comparison:
    """Decode the questions with both; kept results are not measured again.

    Args:
        model: The target.
        new: The trained drafter's folder.
        old: The one that is used now, a folder or hub id; None for the one made for the model.
        kept: Folder for the results so far.
        tell: Called with the fraction done; an exception of it ends the comparison.

    Raises:
        RdchatError: If the new one cannot be loaded, or results cannot be kept.
    """
    name, folder, problem = _old(model, old)
    folders = [new, *([folder] if folder else [])]
    rows: list[dict[str, float | None]] = []
    for place, drafter in enumerate(folders):
        results = []
        file = kept / f"compared-{place}.jsonl"
        for result in _results(model, drafter, file):
            results.append(result)
            tell((place + len(results) / len(EVERYDAY_PROMPTS)) / len(folders))
        rows.append(_figures(results))
    others = rows[1] if len(rows) > 1 else {}
    groups = tuple(ComparedGroup(group, figure, others.get(group)) for group, figure in rows[0].items())
    return Comparison(groups, name, draft_name(DRAFT), problem)


def _old(model: LoadedModel, named: str | None) -> tuple[str, Path | None, str]:
    """Return the old drafter's name and folder, and why it cannot draft; no name where there is none."""
    try:
        binding = TargetBinding.of(model.info)
        folder = resolve_drafter(named) if named is not None else search_drafters(binding.hash).folder
        if folder is None:
            return "", None, ""
        name = named if named is not None and is_hub_id(named) else shown_name(folder)
        load_drafter(folder, model)
    except RdchatError as error:
        return Path(named or "").name, None, error.message
    return name, folder, ""


def _results(model: LoadedModel, drafter: Path, file: Path) -> Iterator[Result]:
    sampling = SamplingParams(temperature=0, max_tokens=_TOKENS)
    draft = replace(DRAFT, drafter=str(drafter))
    facts = {"drafter": str(drafter), "dtype": model.info.dtype, "tokens": _TOKENS}
    with closing(CountsFile(file, facts)) as counts:
        yield from Evaluation(ChatSession(model), sampling).run(EVERYDAY_PROMPTS, [draft], counts)


def _figures(results: Sequence[Result]) -> dict[str, float | None]:
    rows = report(results)
    figures = {str(row["group"]): row["tokens_per_target_call"] for row in rows}
    return {group: figure if isinstance(figure, float) else None for group, figure in figures.items()}
