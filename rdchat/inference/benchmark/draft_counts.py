"""Figures of replies that drafters were measured with, pooled by draft settings and group of prompts."""

from collections.abc import Sequence
from typing import Any

from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.benchmark.recording import Recording

Result = tuple[Prompt, DraftSettings, Recording]
"""A prompt, the draft settings it was decoded with, and the reply."""


def draft_name(draft: DraftSettings) -> str:
    """Return a name for people of a drafter head's settings, such as `W4 L5` or `W4 L5 + lookup`."""
    return f"W{draft.beam_width} L{draft.beam_length}" + (" + lookup" if draft.lookup_branch else "")


def report(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return results as JSON, pooled by draft and by group; the group `all` includes all prompts."""
    rows: list[dict[str, Any]] = []
    for draft in dict.fromkeys(draft for _, draft, _ in results):
        mine = [(prompt.group, reply) for prompt, own, reply in results if own == draft]
        groups = [name for name in dict.fromkeys(group for group, _ in mine) if name]
        for group in [*groups, "all"]:
            replies = [reply for name, reply in mine if group in {name, "all"}]
            calls = sum(reply.statistics.target_calls for reply in replies)
            rows.append(
                {
                    "setup": draft_name(draft),
                    "group": group,
                    "prompts": len(replies),
                    "tokens_per_target_call": sum(reply.decoded for reply in replies) / calls if calls else None,
                    "acceptance_by_position": _acceptance(replies, draft.beam_length - 1),
                }
            )
    return rows


def _acceptance(replies: Sequence[Recording], positions: int) -> list[float | None]:
    """Return the share accepted at each draft position, given that all earlier tokens were; None without drafts."""
    rounds = [each for reply in replies for each in reply.rounds]
    offered = [sum(min(each.accepted + 1, each.drafted) > n for each in rounds) for n in range(positions)]
    accepted = [sum(each.accepted > n for each in rounds) for n in range(positions)]
    return [one / all_offered if all_offered else None for one, all_offered in zip(accepted, offered, strict=True)]
