"""The card of a drafter: target, data, recipe, measurements and licence, as Markdown."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.drafting.checkpoints.drafter_files import BINDING
from rdchat.inference.training.heads.recipes import default_recipe
from rdchat.inference.training.run.training_plan import TrainingPlan, TrainingSettings


def card(plan: TrainingPlan, head: Mapping[str, Any], facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown. It holds no text of anybody's.

    Args:
        plan: Settings and target of the training.
        head: The configuration that the head is stored with.
        facts: Of the run: answer tokens, conversations, steps, device, dtype, version, licence.
        rows: Of `draft_counts.report`, for questions that were not trained on.
    """
    settings, binding = plan.settings, plan.binding
    return f"""# {settings.kind.words} drafter for {binding.name}

| target | |
|---|---|
| name | {binding.name} |
| architecture | {binding.architecture} |
| hash of its weights and tokenizer | `{binding.hash}` |

## Data
{facts["answer_tokens"]:,} tokens of {facts["conversations"]:,} answers that the target gave itself, half of them
at temperature 0 and half at 0.7 with top-p 0.95, to questions that it wrote or finished from rdchat's built-in
seed prompts. {_own_questions(settings)}Loops were cut, and one conversation of every 15 was kept out of the training.
Seed {settings.seed}, {settings.sequences} conversations at a time. Made with rdchat {facts["version"]} on
{facts["device"]} in {facts["dtype"]}.

## Figures
Tokens per target call, decoded greedily on questions kept out of the training, and the share of drafted tokens that
was accepted at each position behind the root:

| setup | prompts | tokens per target call | accepted by position |
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
| steps | {facts["steps"]:,} of {facts["all_steps"]:,} |

Make it again, with this model: `{_command(settings, facts)}`

## Licence
{facts["licence"]} It was trained on the target's own answers: use it under the target's licence.
"""


def _own_questions(settings: TrainingSettings) -> str:
    """Say whether questions of the person's own were mixed in, and where they came from."""
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
    """Return the settings of the network: a part of our configurations, all but the binding of published ones."""
    found: Mapping[str, Any] = config.get("architecture") or {k: v for k, v in config.items() if k != BINDING}
    return found


def _table(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in facts.items())


def _command(settings: TrainingSettings, facts: dict[str, Any]) -> str:
    """Return the command that makes the same data and trains on it in the same way; hours are a number of tokens."""
    tokens = settings.tokens if settings.hours is None else facts["answer_tokens"]
    options = ["--tokens", str(tokens), "--seed", str(settings.seed), "--dtype", facts["dtype"], "--out", "FOLDER"]
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
