"""Measuring a drafter by decoding with it: tokens per target call and acceptance, by group of prompts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rdchat.inference.draft import Drafter
from rdchat.inference.drafter_folder import StoredDrafter
from rdchat.inference.events import ReplyEnd, TokenEvent
from rdchat.inference.ledger import Ledger
from rdchat.inference.lookup import LookupDrafter
from rdchat.inference.prompt_files import Prompt
from rdchat.inference.recurrent_beam import BeamShape
from rdchat.inference.recurrent_drafter import RecurrentModel, RecurrentSettings
from rdchat.inference.reply import Clock, ReplyJob
from rdchat.inference.requests import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.rounds import RoundIterator
from rdchat.inference.target import KVCache, LoadedModel

_LOOP_RUN = 8  # tokens of a run that counts as repeated


@dataclass(frozen=True, slots=True)
class Setup:
    """A way to draft.

    Attributes:
        width: Beam width; 0 where prompt lookup drafts alone.
        length: Beam length, the root included.
        lookup_branch: Whether a path from prompt lookup is offered as well.
    """

    width: int
    length: int
    lookup_branch: bool = False

    def __str__(self) -> str:
        if not self.width:
            return f"lookup L{self.length}"
        return f"W{self.width} L{self.length}" + (" + lookup" if self.lookup_branch else "")


@dataclass(frozen=True, slots=True)
class Trial:
    """What decoding prompts with one setup brought; sums, so that trials can be pooled.

    Attributes:
        prompts: Number of prompts.
        decoded: Tokens but each reply's first, which prefill brings.
        target_calls: Rounds.
        offered: For each draft position, the rounds that offered a token there and had accepted all before it.
        accepted: For each draft position, the rounds that accepted it.
        runs: Runs of 8 tokens in the replies.
        repeated_runs: Those that occurred before in the same reply.
    """

    prompts: int = 0
    decoded: int = 0
    target_calls: int = 0
    offered: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    runs: int = 0
    repeated_runs: int = 0

    @property
    def tokens_per_target_call(self) -> float | None:
        return self.decoded / self.target_calls if self.target_calls else None

    @property
    def acceptance(self) -> list[float | None]:
        """The share accepted at each draft position, given that all before were."""
        return [
            accepted / offered if offered else None
            for accepted, offered in zip(self.accepted, self.offered, strict=True)
        ]

    @classmethod
    def pooled(cls, trials: Sequence["Trial"]) -> "Trial":
        """Return the sum of trials."""
        return cls(
            sum(trial.prompts for trial in trials),
            sum(trial.decoded for trial in trials),
            sum(trial.target_calls for trial in trials),
            _column_sums([trial.offered for trial in trials]),
            _column_sums([trial.accepted for trial in trials]),
            sum(trial.runs for trial in trials),
            sum(trial.repeated_runs for trial in trials),
        )


def _column_sums(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    depth = max((len(row) for row in rows), default=0)
    return tuple(sum(row[place] for row in rows if place < len(row)) for place in range(depth))


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

    def run(self, prompts: Sequence[Prompt], setups: Sequence[Setup]) -> Iterator[tuple[Prompt, Setup, Trial]]:
        """Decode every prompt with every setup."""
        for prompt in prompts:
            for setup in setups:
                yield prompt, setup, self._decode(prompt, setup)

    def _decode(self, prompt: Prompt, setup: Setup) -> Trial:
        message = ChatMessage(Role.USER, prompt.text)
        request = GenerationRequest((message,), self._sampling, self._seed)
        tokens = self._model.encode_chat(request.messages, continue_last=False)
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

    def _drafter(self, tokens: list[int], request: GenerationRequest, setup: Setup) -> Drafter:
        if not setup.width:
            return LookupDrafter(tokens, setup.length - 1)
        settings = RecurrentSettings(BeamShape(setup.width, setup.length), setup.lookup_branch)
        return self._recurrent.drafter(tokens, request, settings)


def repeated_runs(tokens: Sequence[int]) -> tuple[int, int]:
    """Return the number of runs of 8 tokens, and of those among them that occurred before."""
    runs = [tuple(tokens[start : start + _LOOP_RUN]) for start in range(len(tokens) - _LOOP_RUN + 1)]
    return len(runs), len(runs) - len(set(runs))


def report(results: Sequence[tuple[Prompt, Setup, Trial]]) -> list[dict[str, object]]:
    """Pool results by setup and group, `all` among them, as JSON holds them."""
    rows: list[dict[str, object]] = []
    for setup in dict.fromkeys(setup for _, setup, _ in results):
        mine = [(prompt.group, trial) for prompt, own, trial in results if own == setup]
        groups = [name for name in dict.fromkeys(group for group, _ in mine) if name]
        for group in [*groups, "all"]:
            pooled = Trial.pooled([trial for name, trial in mine if group in {name, "all"}])
            rows.append(
                {
                    "setup": str(setup),
                    "beam_width": setup.width,
                    "beam_length": setup.length,
                    "lookup_branch": setup.lookup_branch,
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
