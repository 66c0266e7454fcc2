"""Measuring a drafter by decoding with it: tokens per target call and acceptance, by group of prompts."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rdchat.errors import PromptTooLongError
from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.drafter_folder import StoredDrafter
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.recurrent_beam import BeamShape
from rdchat.inference.drafting.recurrent_drafter import RecurrentModel, RecurrentSettings
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.run.trials import Result, Setup, Trial, TrialFile

_LOOP_RUN = 8  # tokens of a run that counts as repeated


class Evaluation:
    """Decodes prompts with a drafter.

    Args:
        model: The target.
        stored: The drafter.
        sampling: How tokens are chosen, and the longest reply.
        seed: Reply seed, the same for all prompts.
    """

    def __init__(self, model: LoadedModel, stored: StoredDrafter, sampling: SamplingParams, seed: int = 0) -> None:
        self._model = model
        self._recurrent = RecurrentModel(model, stored)
        self._sampling = sampling
        self._seed = seed

    def check(self, prompts: Sequence[Prompt]) -> None:
        """Look whether all prompts can be answered.

        Raises:
            PromptTooLongError: If one leaves no room for a reply.
            ModelError: If the chat template refuses one.
        """
        context = self._model.info.context_length
        for prompt in prompts:
            length = len(self._encode(prompt))
            if length >= context:
                raise PromptTooLongError(
                    f'The prompt "{prompt.text[:40]}…" is {length:,} tokens long; with the reply, '
                    f"{self._model.info.name} takes {context:,}.",
                    "Shorten it, or leave it out.",
                )

    def run(
        self, prompts: Sequence[Prompt], setups: Sequence[Setup], kept: TrialFile | None = None
    ) -> Iterator[Result]:
        """Decode every prompt with every setup; results that are kept are taken from there, new ones are added."""
        for prompt in prompts:
            for setup in setups:
                trial = kept.find(prompt, setup) if kept else None
                if trial is None:
                    trial = self._decode(prompt, setup)
                    if kept:
                        kept.add(prompt, setup, trial)
                yield prompt, setup, trial

    def _decode(self, prompt: Prompt, setup: Setup) -> Trial:
        request = GenerationRequest((ChatMessage(Role.USER, prompt.text),), self._sampling, self._seed)
        tokens = self._encode(prompt)
        job = ReplyJob(self._model, KVCache(self._model.network), tokens, request, Ledger(), Clock())
        offered, accepted = Counter[int](), Counter[int]()
        end: ReplyEnd | None = None
        for event in RoundIterator(job, self._drafter(tokens, request, setup)):
            if isinstance(event, TokenEvent) and event.round is not None:
                offered.update(range(min(event.round.accepted + 1, event.round.drafted)))
                accepted.update(range(event.round.accepted))
            elif isinstance(event, ReplyEnd):
                end = event
        assert end is not None
        places = range(setup.length - 1)
        return Trial(
            1,
            len(end.token_ids) - 1,
            end.statistics.target_calls,
            tuple(offered[place] for place in places),
            tuple(accepted[place] for place in places),
            *repeated_runs(end.token_ids),
        )

    def _encode(self, prompt: Prompt) -> list[int]:
        return self._model.encode_chat((ChatMessage(Role.USER, prompt.text),), continue_last=False)

    def _drafter(self, tokens: list[int], request: GenerationRequest, setup: Setup) -> Drafter:
        if not setup.width:
            return LookupDrafter(tokens, setup.length - 1)
        settings = RecurrentSettings(BeamShape(setup.width, setup.length), setup.lookup_branch)
        return self._recurrent.drafter(tokens, request, settings)


def repeated_runs(tokens: Sequence[int]) -> tuple[int, int]:
    """Return the number of runs of 8 tokens, and of those among them that occurred before."""
    runs = [tuple(tokens[start : start + _LOOP_RUN]) for start in range(len(tokens) - _LOOP_RUN + 1)]
    return len(runs), len(runs) - len(set(runs))
