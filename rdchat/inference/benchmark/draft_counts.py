"""Counts of drafted and accepted tokens, which can be added up."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings, Mode
from rdchat.inference.drafting.lookup_index import most_nodes


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Counts from decoding prompts with drafts of one shape; they can be added up."""

    prompts: int = 0
    decoded: int = 0  # tokens without each reply's first, which comes with the prefill
    target_calls: int = 0
    offered: tuple[int, ...] = ()  # by draft position: rounds that offered a token there and accepted all before it
    accepted: tuple[int, ...] = ()  # by draft position: rounds that accepted it
    runs: int = 0  # runs of 8 tokens in the replies
    repeated_runs: int = 0  # those that occurred before in the same reply

    @property
    def tokens_per_target_call(self) -> float | None:
        return self.decoded / self.target_calls if self.target_calls else None

    @property
    def acceptance(self) -> list[float | None]:
        """The share accepted at each draft position, given that all earlier tokens were."""
        return [
            accepted / offered if offered else None
            for accepted, offered in zip(self.accepted, self.offered, strict=True)
        ]

    @classmethod
    def pooled(cls, counts: Sequence["DraftCounts"]) -> "DraftCounts":
        """Return the sum of counts."""
        sums = ("prompts", "decoded", "target_calls", "runs", "repeated_runs")
        pooled: dict[str, Any] = {name: sum(getattr(each, name) for each in counts) for name in sums}
        for name in ("offered", "accepted"):
            by_position = zip_longest(*(getattr(each, name) for each in counts), fillvalue=0)
            pooled[name] = tuple(map(sum, by_position))
        return cls(**pooled)


Result = tuple[Prompt, DraftSettings, DraftCounts]
"""A prompt, the draft settings it was decoded with, and the counts."""


def draft_name(draft: DraftSettings) -> str:
    """Return such as `W4 L5`, `W4 L5 + lookup` or `lookup L5`, a name for people."""
    if draft.mode is Mode.LOOKUP:
        return f"lookup L{1 + draft.draft_tokens}"
    return f"W{draft.beam_width} L{draft.beam_length}" + (" + lookup" if draft.lookup_branch else "")


def most_drafted(draft: DraftSettings) -> int:
    """Return the most tokens of a draft, without the root."""
    return most_nodes(draft.draft_tokens) if draft.mode is Mode.LOOKUP else draft.beam_length - 1


def report(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return results as JSON, pooled by draft and by group; the group `all` includes all prompts."""
    rows: list[dict[str, Any]] = []
    for draft in dict.fromkeys(draft for _, draft, _ in results):
        mine = [(prompt.group, counts) for prompt, own, counts in results if own == draft]
        groups = [name for name in dict.fromkeys(group for group, _ in mine) if name]
        alone = draft.mode is Mode.LOOKUP
        for group in [*groups, "all"]:
            pooled = DraftCounts.pooled([counts for name, counts in mine if group in {name, "all"}])
            rows.append(
                {
                    "setup": draft_name(draft),
                    "beam_width": 0 if alone else draft.beam_width,
                    "beam_length": 1 + most_drafted(draft),
                    "lookup_branch": not alone and draft.lookup_branch,
                    "group": group,
                    "prompts": pooled.prompts,
                    "decoded_tokens": pooled.decoded,
                    "target_calls": pooled.target_calls,
                    "tokens_per_target_call": pooled.tokens_per_target_call,
                    "acceptance_by_position": pooled.acceptance,
                    "repeated_runs": pooled.repeated_runs / pooled.runs if pooled.runs else None,
                }
            )
    return rows
