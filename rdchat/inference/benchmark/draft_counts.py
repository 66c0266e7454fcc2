"""Counts of drafted and accepted tokens, which can be added up."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Counts from decoding prompts with drafts of one shape; they can be added up."""

    prompts: int = 0
    decoded: int = 0  # tokens without each reply's first, which comes with the prefill
    target_calls: int = 0
    offered: tuple[int, ...] = ()  # by draft position: rounds that offered a token there and accepted all before it
    accepted: tuple[int, ...] = ()  # by draft position: rounds that accepted it

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
        sums = ("prompts", "decoded", "target_calls")
        pooled: dict[str, Any] = {name: sum(getattr(each, name) for each in counts) for name in sums}
        for name in ("offered", "accepted"):
            by_position = zip_longest(*(getattr(each, name) for each in counts), fillvalue=0)
            pooled[name] = tuple(map(sum, by_position))
        return cls(**pooled)


Result = tuple[Prompt, DraftSettings, DraftCounts]
"""A prompt, the draft settings it was decoded with, and the counts."""


def draft_name(draft: DraftSettings) -> str:
    """Return a name for people of a drafter head's settings, such as `W4 L5` or `W4 L5 + lookup`."""
    return f"W{draft.beam_width} L{draft.beam_length}" + (" + lookup" if draft.lookup_branch else "")


def report(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return results as JSON, pooled by draft and by group; the group `all` includes all prompts."""
    rows: list[dict[str, Any]] = []
    for draft in dict.fromkeys(draft for _, draft, _ in results):
        mine = [(prompt.group, counts) for prompt, own, counts in results if own == draft]
        groups = [name for name in dict.fromkeys(group for group, _ in mine) if name]
        for group in [*groups, "all"]:
            pooled = DraftCounts.pooled([counts for name, counts in mine if group in {name, "all"}])
            rows.append(
                {
                    "setup": draft_name(draft),
                    "group": group,
                    "prompts": pooled.prompts,
                    "tokens_per_target_call": pooled.tokens_per_target_call,
                    "acceptance_by_position": pooled.acceptance,
                }
            )
    return rows
