"""Writes a drafter's card in Markdown: target, data, recipe, measurements and licence."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rdchat import __version__
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.training import TrainedKind
from rdchat.inference.models.model_files import BINDING
from rdchat.inference.training.data.shards import TrainingConversation, answer_tokens
from rdchat.inference.training.heads.recipes import default_recipe
from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective
from rdchat.inference.training.heads.sequence_objective import SequenceObjective
from rdchat.inference.training.run.training_plan import TrainingPlan, TrainingSettings


def card(
    plan: TrainingPlan,
    model: ModelInfo,
    *,
    head: Mapping[str, Any],
    steps: Sequence[int],
    conversations: Sequence[TrainingConversation],
    rows: Sequence[dict[str, Any]],
) -> str:
    """Return the card. It contains no text of any person.

    Args:
        plan: Settings and target of the training.
        model: The target, as it was loaded.
        head: The head's stored configuration.
        steps: Steps done, and steps planned.
        conversations: The data.
        rows: From `draft_counts.report`, for questions not used in training.
    """
    objective = RecurrentObjective if plan.settings.kind is TrainedKind.RECURRENT else SequenceObjective
    tokens = answer_tokens(conversations)
    settings, binding = plan.settings, plan.binding
    return f"""# {settings.kind.words} drafter for {binding.name}

| target | |
|---|---|
| name | {binding.name} |
| architecture | {binding.architecture} |
| hash of its weights and tokenizer | `{binding.hash}` |

## Data
{tokens:,} tokens of {len(conversations):,} answers that the target gave itself, half of them
at temperature 0 and half at 0.7 with top-p 0.95, to questions that it wrote or finished from rdchat's built-in
seed prompts. {_own_questions(settings)}Loops were cut, and one conversation of every 15 was kept out of the training.
Seed {settings.seed}, {settings.sequences} conversations at a time. Made with rdchat {__version__} on
{model.device} in {model.dtype}.

## Figures
Tokens per step, decoded greedily on questions kept out of the training, and the share of drafted tokens that
was accepted at each position behind the root:

| setup | prompts | tokens per step | accepted by position |
|---|---|---|---|
{_figures(rows)}

## Head
| | |
|---|---|
{_table(_shape(head))}

## Recipe
{_start(settings)}| | |
|---|---|
{_table(asdict(settings.recipe))}
| steps | {steps[0]:,} of {steps[1]:,} |

Make it again, with this model: `{_command(settings, tokens, model.dtype)}`

## Licence
{objective.licence} It was trained on the target's own answers: use it under the target's licence.
"""


def _own_questions(settings: TrainingSettings) -> str:
    """Return a sentence on the person's own questions that were mixed in; empty without any."""
    parts = []
    if settings.prompts:
        parts.append(f"{len(settings.prompts):,} questions from a file of the person's own")
    if settings.asked:
        parts.append(f"{len(settings.asked):,} questions from the person's own chats")
    return f"Mixed in were {' and '.join(parts)}. " if parts else ""


def _start(settings: TrainingSettings) -> str:
    if settings.start is None:
        return ""
    return f"The weights to begin with were those of the drafter `{settings.start.name}`, on other answers.\n\n"


def _figures(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if row["group"] == "all" and row["tokens_per_target_call"] is not None:
            shares = " ".join("-" if share is None else f"{share:.0%}" for share in row["acceptance_by_position"])
            lines.append(f"| {row['setup']} | {row['prompts']} | {row['tokens_per_target_call']:.2f} | {shares} |")
    return "\n".join(lines) or "| none was measured: there was no time, or too little data | | | |"


def _shape(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the network from our configurations, or all but the binding from published ones."""
    found: Mapping[str, Any] = config.get("architecture") or {k: v for k, v in config.items() if k != BINDING}
    return found


def _table(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in facts.items())


def _command(settings: TrainingSettings, answer_tokens: int, dtype: str) -> str:
    """Return the command that makes the same data and training; a limit of hours becomes a number of tokens."""
    tokens = settings.tokens if settings.hours is None else answer_tokens
    options = ["--tokens", str(tokens), "--seed", str(settings.seed), "--dtype", dtype, "--out", "FOLDER"]
    if settings.kind is not TrainedKind.RECURRENT:
        options += ["--kind", settings.kind.value]
    if settings.recipe.epochs != default_recipe(settings.kind, tokens=tokens).epochs:
        options += ["--epochs", str(settings.recipe.epochs)]
    if settings.start is not None:
        options += ["--start-from", "DRAFTER"]
    if settings.prompts:
        options += ["--prompts", "FILE"]
    if settings.asked:
        options.append("--from-my-chats")
    return shlex.join(["rdchat", "train-drafter", *options])
