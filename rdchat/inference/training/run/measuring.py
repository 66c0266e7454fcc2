"""Measures a trained drafter by decoding: on held-out questions, and against the drafter used before."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams
from rdchat.inference.api.training import ComparedGroup, Comparison, Phase, TrainingProgress
from rdchat.inference.benchmark.draft_counts import Result, draft_name, report
from rdchat.inference.benchmark.recording import measure_drafts
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import is_hub_id, shown_name
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.data.token_sequence import Template
from rdchat.inference.training.heads.samples import Answers
from rdchat.inference.training.run.clocks import Pace, TimeLimit

_EVALUATED = 12  # held-out questions decoded at the end
_EVALUATED_TOKENS = 96
_COMPARED_TOKENS = 64
_DRAFTS = tuple(  # the second is used for the comparison
    DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=5, lookup_branch=branch)
    for width, branch in ((1, False), (4, False), (4, True))
)


def held_out_questions(
    model: LoadedModel, template: Template, conversations: Sequence[TrainingConversation]
) -> list[Prompt]:
    """Return questions of conversations that were not used in training."""
    before, after = len(template.before), len(template.after)
    held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
    texts = [model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
    return [Prompt(text) for text in texts if text][:_EVALUATED]


def evaluate(
    model: LoadedModel, prompts: Sequence[Prompt], place: Path, limit: TimeLimit, now: Callable[[], float]
) -> Generator[TrainingProgress, None, list[Result]]:
    """Decode held-out questions with the drafter in `place`, as many as the time allows."""
    results = list[Result]()
    drafts = [replace(draft, drafter=str(place / "drafter")) for draft in _DRAFTS]
    pace, total, decoded = Pace(now), len(prompts) * len(drafts), 0
    for result in measure_drafts(ChatSession(model), prompts, drafts, _greedy(_EVALUATED_TOKENS)):
        results.append(result)
        decoded += result[2].decoded
        left = pace.spent_s / len(results) * (total - len(results))
        yield TrainingProgress(Phase.EVALUATE, len(results) / total, decoded / pace.spent_s, left_s=max(left, 0.0))
        if limit.left_s < 0 and len(results) % len(drafts) == 0:
            break
    return results


def compare_drafters(model: LoadedModel, new: Path, old: str | None, show: Callable[[float], None]) -> Comparison:
    """Decode everyday questions that neither drafter was trained on, with a new drafter and the old one.

    Args:
        model: The target.
        new: The trained drafter's folder.
        old: The drafter used now, a folder or hub id; None for the one made for the model.
        show: Called with the fraction done; an exception from it ends the comparison.

    Raises:
        RdchatError: If the new one cannot be loaded.
    """
    name, folder, problem = _old(model, old)
    folders = [path for path in (new, folder) if path]
    figures: list[dict[str, float | None]] = []  # by group, for each drafter
    for drafter in folders:
        draft, results = replace(_DRAFTS[1], drafter=str(drafter)), list[Result]()
        for result in measure_drafts(ChatSession(model), EVERYDAY_PROMPTS, [draft], _greedy(_COMPARED_TOKENS)):
            results.append(result)
            show((len(figures) + len(results) / len(EVERYDAY_PROMPTS)) / len(folders))
        figures.append({row["group"]: row["tokens_per_target_call"] for row in report(results)})
    before = figures[1] if len(figures) > 1 else {}
    groups = tuple(ComparedGroup(group, figure, before.get(group)) for group, figure in figures[0].items())
    return Comparison(groups, name, draft_name(_DRAFTS[1]), problem)


def _old(model: LoadedModel, named: str | None) -> tuple[str, Path | None, str]:
    """Return the old drafter's name and folder, and why it cannot draft; an empty name without one."""
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


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens)
