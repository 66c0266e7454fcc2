"""Measures a trained drafter by decoding: on held-out questions, and beside the drafter that was used before."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.api.training import ComparedGroup, Comparison, Phase, TrainingProgress
from rdchat.inference.auto.acceptance import Acceptance
from rdchat.inference.auto.calibration import AcceptanceCalibration
from rdchat.inference.benchmark.draft_counts import CountsFile, Result, draft_name, report
from rdchat.inference.benchmark.evaluation import Evaluation
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import is_hub_id, shown_name
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batch import Template
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.samples import Answers
from rdchat.inference.training.run.clocks import Pace, TimeLimit

_EVALUATED = 12  # held-out questions that are decoded at the end
_EVALUATED_TOKENS = 96
_CALIBRATION_PROMPTS = 24  # held-out questions that the acceptance estimates are calibrated on
_CALIBRATION_TOKENS = 48
_COMPARED_TOKENS = 64
_DRAFTS = tuple(  # the second one is compared
    DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=5, lookup_branch=branch)
    for width, branch in ((1, False), (4, False), (4, True))
)


def held_out_questions(
    model: LoadedModel, template: Template, conversations: Sequence[TrainingConversation]
) -> list[Prompt]:
    """Return questions of conversations that were not trained on."""
    before, after = len(template.before), len(template.after)
    held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
    texts = [model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
    return [Prompt(text) for text in texts if text][:_CALIBRATION_PROMPTS]


def calibrate(
    model: LoadedModel, prompts: Sequence[Prompt], place: Path, limit: TimeLimit, now: Callable[[], float]
) -> Generator[TrainingProgress, None, Acceptance | None]:
    """Calibrate the automatic mode's acceptance estimates of the drafter in `place` on held-out questions."""
    sampling = SamplingParams(temperature=0, max_tokens=_CALIBRATION_TOKENS)
    calibration = AcceptanceCalibration(model, HeadModel(model, load_drafter(place / "drafter", model)))
    pace, tokens = Pace(now), 0
    for number, prompt in enumerate(prompts, start=1):
        request = GenerationRequest((ChatMessage(Role.USER, prompt.text),), sampling)
        tokens += calibration.reply(request, place / f"watched-{number}.npz")
        yield TrainingProgress(Phase.WATCH, number / len(prompts), tokens / pace.spent_s)
        if limit.left_s < 0:
            break
    return calibration.acceptance


def evaluate(
    model: LoadedModel, prompts: Sequence[Prompt], place: Path, limit: TimeLimit, now: Callable[[], float]
) -> Generator[TrainingProgress, None, list[Result]]:
    """Decode held-out questions with the drafter in `place`, as many as there is time for."""
    prompts, results = prompts[:_EVALUATED], list[Result]()
    drafts = [replace(draft, drafter=str(place / "drafter")) for draft in _DRAFTS]
    pace, total, decoded = Pace(now), len(prompts) * len(drafts), 0
    file, device = place / "evaluation.jsonl", model.info.device
    measured = _measured(model, prompts, drafts, tokens=_EVALUATED_TOKENS, file=file, device=device)
    with closing(measured):
        for result in measured:
            results.append(result)
            decoded += result[2].decoded
            left = pace.spent_s / len(results) * (total - len(results))
            yield TrainingProgress(Phase.EVALUATE, len(results) / total, decoded / pace.spent_s, left_s=max(left, 0.0))
            if limit.left_s < 0 and len(results) % len(drafts) == 0:
                break
    return results


def compare_drafters(
    model: LoadedModel, new: Path, old: str | None, kept: Path, show: Callable[[float], None]
) -> Comparison:
    """Decode everyday questions, which neither was trained on, with a new drafter and the old one.

    Args:
        model: The target.
        new: The trained drafter's folder.
        old: The one that is used now, a folder or hub id; None for the one made for the model.
        kept: Folder for the results so far.
        show: Called with the fraction done; an exception of it ends the comparison.

    Raises:
        RdchatError: If the new one cannot be loaded, or results cannot be kept.
    """
    name, folder, problem = _old(model, old)
    folders = [new, *([folder] if folder else [])]
    rows: list[dict[str, float | None]] = []
    for place, drafter in enumerate(folders):
        results, path = list[Result](), str(drafter)
        file, draft = kept / f"compared-{place}.jsonl", replace(_DRAFTS[1], drafter=path)
        for result in _measured(model, EVERYDAY_PROMPTS, [draft], tokens=_COMPARED_TOKENS, file=file, drafter=path):
            results.append(result)
            show((place + len(results) / len(EVERYDAY_PROMPTS)) / len(folders))
        figures = {str(row["group"]): row["tokens_per_target_call"] for row in report(results)}
        rows.append({group: figure if isinstance(figure, float) else None for group, figure in figures.items()})
    others = rows[1] if len(rows) > 1 else {}
    groups = tuple(ComparedGroup(group, figure, others.get(group)) for group, figure in rows[0].items())
    return Comparison(groups, name, draft_name(_DRAFTS[1]), problem)


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


def _measured(
    model: LoadedModel,
    prompts: Sequence[Prompt],
    drafts: Sequence[DraftSettings],
    *,
    tokens: int,
    file: Path,
    **facts: str,
) -> Generator[Result]:
    """Decode prompts with drafts; results that are kept in the file, with these facts, are not measured again."""
    with closing(CountsFile(file, {**facts, "dtype": model.info.dtype, "tokens": tokens})) as counts:
        evaluation = Evaluation(ChatSession(model), SamplingParams(temperature=0, max_tokens=tokens))
        yield from evaluation.run(prompts, drafts, counts)
