"""The card of a drafter: which target, which data, which recipe, how good, under which licence."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rdchat.inference.recurrent_head import HeadConfig
from rdchat.inference.training.plan import TrainingPlan


def card(plan: TrainingPlan, head: HeadConfig, facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return Markdown.

    Args:
        plan: What was asked, of which target.
        head: The trained head's shape.
        facts: What the run found out: answer tokens, conversations, device, dtype, version.
        rows: What `evaluate.report` gave on questions that were not trained on.
    """
    settings, binding = plan.settings, plan.binding
    chats = " Questions of the person's own chats were among them." if settings.from_chats else ""
    recipe = "\n".join(f"| {name} | {value} |" for name, value in asdict(settings.recipe).items())
    shape = "\n".join(f"| {name} | {value} |" for name, value in head.to_dict().items())
    figures = "\n".join(
        f"| {row['setup']} | {row['prompts']} | {row['tokens_per_target_call']:.2f} |"
        for row in rows
        if row["group"] == "all" and row["tokens_per_target_call"] is not None
    )
    return f"""# Recurrent drafter for {binding.name}

| target | |
|---|---|
| name | {binding.name} |
| architecture | {binding.architecture} |
| hash of its weights and tokenizer | `{binding.hash}` |

## Data
{facts["answer_tokens"]:,} tokens of {facts["conversations"]:,} answers that the target gave itself, half of them
at temperature 0 and half at 0.7 with top-p 0.95, to questions that it wrote or finished from rdchat's built-in
openings.{chats}
Seed {settings.seed}. Made with rdchat {facts["version"]} on {facts["device"]} in {facts["dtype"]}.

## Figures
Tokens per target call, decoded greedily on questions kept out of the training:

| setup | prompts | tokens per target call |
|---|---|---|
{figures}

## Head
| | |
|---|---|
{shape}

## Recipe
| | |
|---|---|
{recipe}

Make it again: `rdchat train-drafter --tokens {settings.tokens} --seed {settings.seed} --out FOLDER` with this model.

## Licence
The head holds no weights of the target. It was trained on the target's own answers: use it under the target's licence.
"""
