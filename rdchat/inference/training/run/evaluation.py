"""Measures a trained drafter by decoding: on held-out questions, and against the drafter used before."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from rdchat.errors import ModelError, RdchatError
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams
from rdchat.inference.api.training import COMPARED_BEAMS, ComparedGroup, Comparison, Phase, TrainingProgress
from rdchat.inference.benchmark.recording import record
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.models.model_files import TargetBinding, is_hub_id, printable_name
from rdchat.inference.session import ChatSession
from rdchat.inference.training.data.data_maker import Template
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.samples import Answers
from rdchat.inference.training.run.phases import Pace
from rdchat.inference.verification.target import LoadedModel

# Held-out questions decoded at the end.
_EVALUATED = 12
_EVALUATED_TOKENS = 96
_COMPARED_TOKENS = 64


_COMPARED = DraftSettings(
    Mode.DRAFTER, beam_width=COMPARED_BEAMS.width, beam_length=COMPARED_BEAMS.length, lookup_branch=False
)
_SETUPS = {
    "W1 L5": replace(_COMPARED, beam_width=1),
    "W4 L5": _COMPARED,
    "W4 L5 + lookup": replace(_COMPARED, lookup_branch=True),
}


def held_out_questions(
    model: LoadedModel, template: Template, conversations: Sequence[TrainingConversation]
) -> list[Prompt]:
    """Return questions of conversations that were not used in training."""
    before = len(template.before)
    after = len(template.after)
    held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
    texts = [model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
    return [Prompt(text) for text in texts if text][:_EVALUATED]


def evaluate(
    model: LoadedModel, prompts: Sequence[Prompt], drafter: Path, now: Callable[[], float]
) -> Generator[TrainingProgress, None, dict[str, Statistics]]:
    """Decode questions with the drafter in a folder; return the sums by setup, such as `W4 L5`."""
    session = ChatSession(model)
    pace = Pace(now)
    done = 0
    decoded = 0
    replies: dict[str, list[Statistics]] = {name: [] for name in _SETUPS}
    for prompt in prompts:
        for name, draft in _SETUPS.items():
            replies[name].append(_decode(session, prompt, replace(draft, drafter=str(drafter)), _EVALUATED_TOKENS))
            done = done + 1
            decoded = decoded + replies[name][-1].generated_tokens - 1
            fraction = done / len(prompts) / len(_SETUPS)
            left_s = pace.spent_s * (1 / fraction - 1)
            yield TrainingProgress(Phase.EVALUATE, fraction, decoded / pace.spent_s, left_s=max(left_s, 0.0))
    return {name: pooled(statistics) for name, statistics in replies.items()}


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
    session = ChatSession(model)
    done = 0
    columns = list[list[float | None]]()
    for drafter in folders:
        draft = replace(_COMPARED, drafter=str(drafter))
        replies = list[Statistics]()
        for prompt in EVERYDAY_PROMPTS:  # Each is a group of its own.
            replies.append(_decode(session, prompt, draft, _COMPARED_TOKENS))
            done += 1
            show(done / len(EVERYDAY_PROMPTS) / len(folders))
        columns.append([each.tokens_per_target_call for each in (*replies, pooled(replies))])
    names = (*(prompt.group for prompt in EVERYDAY_PROMPTS), "all")
    return Comparison(tuple(map(ComparedGroup, names, *columns)), name, problem)


def pooled(replies: Sequence[Statistics]) -> Statistics:
    """Return the sums of the counts from which tokens per target call and acceptance follow."""

    def lengths(name: str) -> tuple[int, ...]:
        return tuple(map(sum, zip_longest(*(getattr(reply, name) for reply in replies), fillvalue=0)))

    return Statistics(
        generated_tokens=1 + sum(max(reply.generated_tokens - 1, 0) for reply in replies),
        target_calls=sum(reply.target_calls for reply in replies),
        drafted_lengths=lengths("drafted_lengths"),
        accepted_lengths=lengths("accepted_lengths"),
    )


def _decode(session: ChatSession, prompt: Prompt, draft: DraftSettings, max_tokens: int) -> Statistics:
    """Decode a greedy reply, starting with empty KV caches.

    Raises:
        ModelError: If the target cannot use the draft.
    """
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    request = GenerationRequest((ChatMessage(Role.USER, prompt.text),), sampling, 0, draft=draft)
    run = record(session, request, lambda: False)
    assert run is not None, "it is never cancelled"
    if run.mode_reason:
        raise ModelError(run.mode_reason)
    return run.statistics


def _old(model: LoadedModel, named: str | None) -> tuple[str, Path | None, str]:
    """Return the old drafter's name and folder, and why it cannot draft; an empty name without one."""
    try:
        binding = TargetBinding.of(model.info)
        folder = resolve_drafter(named) if named is not None else search_drafters(binding.hash).folder
        if folder is None:
            return "", None, ""
        name = named if named is not None and is_hub_id(named) else printable_name(folder)
        load_drafter(folder, model)
    except RdchatError as error:
        return Path(named or "").name, None, error.message
    return name, folder, ""
