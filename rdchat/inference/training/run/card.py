"""Writes a drafter's card in Markdown: what was trained, on what, and the measurements."""

from collections.abc import Mapping, Sequence

from rdchat import __version__
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.training.data.shards import TrainingConversation, answer_tokens
from rdchat.inference.training.run.phases import OBJECTIVES
from rdchat.inference.training.run.training_plan import TrainingPlan


def card(
    plan: TrainingPlan,
    model: ModelInfo,
    *,
    steps: Sequence[int],
    conversations: Sequence[TrainingConversation],
    prompts: int,
    evaluation: Mapping[str, Statistics],
) -> str:
    """Return the card. It contains no text of any person.

    Args:
        plan: Settings and target of the training.
        model: The target, as it was loaded.
        steps: Steps done, and steps planned.
        conversations: The data.
        prompts: Number of questions decoded to evaluate the drafter.
        evaluation: Their counts by setup; see `evaluate`.
    """
    settings, target = plan.settings, plan.binding
    fields = {
        "kind": settings.kind.value,
        "target": target.name,
        "target architecture": target.architecture,
        "target hash": f"`{target.hash}`",
        "target precision": model.dtype,
        "answers": f"{len(conversations):,}",
        "answer tokens": f"{answer_tokens(conversations):,}",
        "own questions from a file": f"{len(settings.prompts):,}",
        "own questions from chats": f"{len(settings.chat_questions):,}",
        "trained further from": settings.start.name if settings.start else "no drafter",
        "target layers read": ", ".join(map(str, plan.reads.layers)),
        "epochs": settings.recipe.epochs,
        "learning rate": settings.recipe.learning_rate,
        "steps": f"{steps[0]:,} of {steps[1]:,}",
        "seed": settings.seed,
        "made with": f"rdchat {__version__} on {model.device}",
    }
    return f"""# {settings.kind.label} drafter for {target.name}

| field | value |
|---|---|
{"\n".join(f"| {name} | {value} |" for name, value in fields.items())}

The target wrote the answers itself. One answer of every 15 was not trained on.

## Tokens per step
Decoded greedily on questions that were not trained on, with the share of drafted tokens that was accepted at each
position:

| setup | prompts | tokens per step | accepted by position |
|---|---|---|---|
{_figures(prompts, evaluation)}

## Licence
{OBJECTIVES[settings.kind].licence} It was trained on the target's own answers: use it under the target's licence.
"""


def _figures(prompts: int, evaluation: Mapping[str, Statistics]) -> str:
    lines = []
    for setup, counts in evaluation.items():
        if counts.tokens_per_target_call is not None:
            shares = " ".join(f"{share:.0%}" for share in counts.acceptance_by_position)
            lines.append(f"| {setup} | {prompts} | {counts.tokens_per_target_call:.2f} | {shares} |")
    return "\n".join(lines) or "| none was measured: there was too little data | | | |"
