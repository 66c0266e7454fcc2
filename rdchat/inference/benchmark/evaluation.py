"""Measures a drafter by decoding with it: tokens per target call and acceptance, by group of prompts."""

from collections.abc import Iterator, Sequence

from rdchat.errors import ModelError
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Role, SamplingParams
from rdchat.inference.benchmark.draft_counts import CountsFile, DraftCounts, Result, most_drafted
from rdchat.inference.benchmark.recording import record
from rdchat.inference.session import ChatSession

_LOOP_RUN = 8  # tokens of a run that counts as repeated


class Evaluation:
    """Decodes prompts with drafts of several shapes.

    Args:
        session: Of the target; what its caches hold is lost.
        sampling: How tokens are chosen, and the longest reply.
        seed: Reply seed, the same for all prompts.
    """

    def __init__(self, session: ChatSession, sampling: SamplingParams, seed: int = 0) -> None:
        self._session = session
        self._sampling = sampling
        self._seed = seed

    def run(
        self, prompts: Sequence[Prompt], drafts: Sequence[DraftSettings], kept: CountsFile | None = None
    ) -> Iterator[Result]:
        """Decode every prompt with every draft; results in `kept` are not measured again, new ones are added to it.

        Raises:
            ModelError: If the target cannot be drafted for in this way.
        """
        for prompt in prompts:
            for draft in drafts:
                counts = kept.find(prompt, draft) if kept else None
                if counts is None:
                    counts = self._decode(prompt, draft)
                    if kept:
                        kept.add(prompt, draft, counts)
                yield prompt, draft, counts

    def _decode(self, prompt: Prompt, draft: DraftSettings) -> DraftCounts:
        message = ChatMessage(Role.USER, prompt.text)
        request = GenerationRequest((message,), self._sampling, self._seed, draft=draft)
        found = record(self._session, request, lambda: False)
        assert found is not None  # as it is never cancelled
        if found.mode_reason:
            raise ModelError(found.mode_reason)
        places = range(most_drafted(draft))
        return DraftCounts(
            1,
            len(found.token_ids) - 1,
            found.statistics.target_calls,
            tuple(sum(min(each.accepted + 1, each.drafted) > place for each in found.rounds) for place in places),
            tuple(sum(each.accepted > place for each in found.rounds) for place in places),
            *repeated_runs(found.token_ids),
        )


def repeated_runs(tokens: Sequence[int]) -> tuple[int, int]:
    """Return the number of runs of 8 tokens, and of those among them that occurred before."""
    runs = [tuple(tokens[start : start + _LOOP_RUN]) for start in range(len(tokens) - _LOOP_RUN + 1)]
    return len(runs), len(runs) - len(set(runs))
