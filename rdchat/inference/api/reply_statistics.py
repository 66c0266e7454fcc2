"""Counters of rounds and replies: plain frozen data. Rates are derived from them where they are shown."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, sqrt
from typing import Self

from rdchat import machine

PATH_SEPARATOR = "/"

# The first few tokens say little about speed.
_ENOUGH_TOKENS = 30
_ENOUGH_MS = 2000.0
# A ratio this close to 1 is neither a gain nor a loss, even with an exact baseline.
_ALIKE = 0.02
# In a wider range a ratio may be a gain as well as a loss.
_NARROW = 0.25
# With an error this large nothing can be compared: the machine was much busier, or less.
_UNKNOWN = 1 / 3
# Covers ratios that are exactly as far from 1 as their error.
_ROUNDING = 1e-9


class Spent(StrEnum):
    """What a reply's time is spent on, in the order in which it is shown."""

    SEEING = "seeing"
    READING = "reading"
    DRAFTING = "drafting"
    CHECKING = "checking"
    WRITING = "without draft"
    OTHER = "other"


class Stage(StrEnum):
    """The stages of a reply's time, nested as they are in the ledger.

    Each has its recorded name, what its own time is spent on, and the name of the row that shows it. Where `spent` is
    None, the stage is a wait for the target's call or for other ranks, and a part of the stage around it.

    Attributes:
        TOKENIZE: Applying the chat template, making tokens of the text, and reading the answer format.
        SEE: Decoding the images of the prompt, and computing their rows.
        PREPARE_IMAGE: Decoding an image and scaling it.
        TOWER: Computing the rows of an image.
        READ_ROWS: Looking for the rows of an image on the disk.
        PREFILL: Reading the prompt.
        DRAFTER_PREFILL: Reading the prompt by the drafter.
        READ: Reading of the prompt by a head.
        FIRST: The first token of a reply.
        DRAFT: Making a draft.
        DRAFT_AHEAD: Making the next draft before its round.
        LOOKUP: Looking up earlier text.
        BEAM_SEARCH: The beam search of a head.
        SELECT_NODES: Selecting the nodes of a tree.
        FEED: A call of the draft model.
        RANK: Ranking the candidates of the draft model.
        SHAPE: Fitting a draft to the answer format.
        DRAFT_WAIT: Handing a draft to the device, and waiting for it.
        WAIT: Waiting for a target call and the choice of tokens.
        WAIT_WITH_DRAFT: Waiting for them and a draft that was queued with them.
        FORWARD_WAIT: Waiting for a target call alone; only with exact times.
        CHOICE_WAIT: Waiting for the choice of tokens alone; only with exact times.
        QUEUE: Handing a target call to the device, and waiting until its queue has room.
        LINK: An exchange with other ranks, and the wait for them; only with exact times.
        QUEUE_STEP: Queueing a plain step.
        FORWARD: The target's call in a plain step.
        PLAIN_WAIT: Reading the token of a plain step, with the wait for it inside.
        ROUND: A round of drafting.
        VERIFY: The target's call in a round.
        CHOOSE: Choosing tokens.
        ACCEPT: Accepting tokens of a draft.
        COMMIT: Committing the caches.
        DETOKENIZE: Making text of tokens.
        PLAN: Choosing the next call, in mode Auto.
        FOLLOW: Learning from the last call, in mode Auto.
        HAND_OVER: Handing tokens to the reader of the reply.
        NOT_MEASURED: Time outside all stages.
    """

    spent: Spent | None
    row: str

    def __new__(cls, name: str, spent: Spent | None, row: str = "") -> Self:
        """Make a member: its value is the recorded name; a row without a name of its own has the stage's."""
        stage = str.__new__(cls, name)
        stage._value_ = name
        stage.spent = spent
        stage.row = row or name
        return stage

    TOKENIZE = "template and tokenize", Spent.READING, "chat template and tokens"
    SEE = "see", Spent.SEEING, "place images"
    PREPARE_IMAGE = "prepare an image", Spent.SEEING, "prepare images"
    TOWER = "tower", Spent.SEEING, "vision tower"
    READ_ROWS = "read rows", Spent.SEEING, "images from the disk"
    PREFILL = "prefill", Spent.READING, "reading the prompt"
    DRAFTER_PREFILL = "prefill of the drafter", Spent.READING, "reading by the drafter"
    READ = "read", Spent.READING, "reading by the drafter"
    FIRST = "first token", Spent.READING
    DRAFT = "draft", Spent.DRAFTING, "prepare drafts"
    DRAFT_AHEAD = "draft ahead", Spent.DRAFTING, "prepare drafts"
    LOOKUP = "lookup", Spent.DRAFTING, "look up"
    BEAM_SEARCH = "beam search", Spent.DRAFTING
    SELECT_NODES = "select nodes", Spent.DRAFTING
    FEED = "feed", Spent.DRAFTING, "draft model"
    RANK = "rank", Spent.DRAFTING, "rank candidates"
    SHAPE = "shape", Spent.DRAFTING, "fit the format"
    DRAFT_WAIT = "wait for the draft", Spent.DRAFTING
    WAIT = "wait", None, "forward and choice"
    WAIT_WITH_DRAFT = "wait with draft", None, "forward and choice"
    FORWARD_WAIT = "wait for forward", None, "forward"
    CHOICE_WAIT = "wait for choice", None, "choice"
    QUEUE = "queue", None, "forward and choice"
    LINK = "link", None, "link to other Macs"
    QUEUE_STEP = "queue step", Spent.OTHER, "prepare steps"
    FORWARD = "forward", Spent.OTHER, "prepare steps"
    PLAIN_WAIT = "wait for token", Spent.OTHER, "prepare steps"
    ROUND = "round", Spent.OTHER, "prepare steps"
    VERIFY = "verify", Spent.OTHER, "prepare steps"
    CHOOSE = "choose", Spent.OTHER, "prepare steps"
    ACCEPT = "accept", Spent.OTHER
    COMMIT = "commit", Spent.OTHER
    DETOKENIZE = "detokenize", Spent.OTHER, "text"
    PLAN = "plan", Spent.OTHER, "automatic mode"
    FOLLOW = "follow", Spent.OTHER, "automatic mode"
    HAND_OVER = "hand over", Spent.OTHER, "hand over tokens"
    NOT_MEASURED = "not measured", Spent.OTHER


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Time spent in one stage.

    Attributes:
        name: Name of the stage.
        parent: Path of the stage around it, such as `round/draft`; empty at the top.
        calls: Number of calls.
        total_ms: Time of all calls, the stages inside included.
    """

    name: str
    parent: str
    calls: int
    total_ms: float

    @property
    def path(self) -> str:
        """Its path in the tree: the names from the top down to its own, joined by `/`."""
        return f"{self.parent}{PATH_SEPARATOR}{self.name}" if self.parent else self.name


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """Counters of one round.

    Attributes:
        round: Number of the round, from 1.
        drafted: Depth of the draft.
        accepted: Accepted drafted tokens that are in the reply.
        emitted: Tokens that the round added to the reply.
        verified_nodes: Packed rows, the root included.
    """

    round: int
    drafted: int
    accepted: int
    emitted: int
    verified_nodes: int


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The present choice of the automatic mode, and its reason.

    Attributes:
        mode: Value of the `Mode` that was chosen.
        width: Number of beams; 1 for a chain, 0 in plain decoding.
        length: Tokens of a beam, or the chain's tokens plus one; 0 in plain decoding.
        tokens_per_call: Expected tokens of a target call.
        cost: Expected time of a round with its draft, divided by that of a plain target call.
        words: A sentence: the reason. Printed and stored JSON has it by this name.
        speedup: Expected speed of the best draft over that of plain steps: 0.9 is slower by a tenth, 1 also stands
            for nothing to draft. None before costs are measured.
    """

    mode: str
    width: int
    length: int
    tokens_per_call: float
    cost: float
    words: str
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters of a reply, unfinished or complete. Rates are derived here and never stored.

    Attributes:
        prompt_tokens: All tokens of the prompt, cached ones included.
        cached_prompt_tokens: Prompt tokens that were in the KV cache already.
        generated_tokens: Tokens of the reply: the first one and a final EOS included, what a stop string cuts excluded.
        prefill_ms: Time from the start of prefill until the first token is known, or the reply is cancelled.
        ttft_ms: Time from the request until the first token is known.
        decode_ms: Time from the first token to the last.
        rounds: Target calls of a drafting mode; 0 in plain decoding.
        drafted: Depth of the drafts, summed over rounds.
        accepted: Accepted drafted tokens that are in the reply, summed over rounds.
        from_chat: Accepted tokens that prompt lookup found in this chat.
        from_replies: Accepted tokens that prompt lookup found in earlier replies.
        from_phrases: Accepted tokens from the n-gram table: they often follow the last ones in shipped answers.
        target_calls: Decode calls whose output is used; prefill does not count.
        verified_nodes: Packed rows of all rounds, the roots included, padding excluded.
        host_syncs: How often the host waited for the device while decoding.
        drafted_lengths: Rounds by depth of the draft: entry n counts those of depth n.
        accepted_lengths: Rounds by accepted length: entry n counts those of which n drafted tokens were accepted.
        peak_memory_bytes: Peak of MLX's memory during the reply.
        earlier_bytes: Memory of the earlier replies that prompt lookup could use.
        context_tokens: Tokens in the context at this moment.
        ledger: Time by stage.
        plain_step_ms: Measured time of a plain target call in the middle of the reply; 0 if it was not measured.
        choice: Choice of the automatic mode; None in other modes.
        plain_error: Possible error of `plain_step_ms`, as a share of it; 0 where unknown.
        dropped_drafts: Drafts that were dropped because the drafter's scores were not finite.
        speeds: Tokens a second over time, newest last; each over a quarter of a second or more.
        disk_prompt_tokens: Those of the cached prompt tokens that were read from disk for this reply.
        others_share: Share of the processors' time that other programs used since the first token; None where that was
            not measured.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    decode_ms: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    from_chat: int = 0
    from_replies: int = 0
    from_phrases: int = 0
    target_calls: int = 0
    verified_nodes: int = 0
    host_syncs: int = 0
    drafted_lengths: tuple[int, ...] = ()
    accepted_lengths: tuple[int, ...] = ()
    peak_memory_bytes: int = 0
    earlier_bytes: int = 0
    context_tokens: int = 0
    ledger: tuple[LedgerEntry, ...] = ()
    plain_step_ms: float = 0.0
    choice: AutoChoice | None = None
    plain_error: float = 0.0
    dropped_drafts: int = 0
    speeds: tuple[float, ...] = ()
    disk_prompt_tokens: int = 0
    others_share: float | None = None

    @property
    def decode_tps(self) -> float | None:
        """Decoded tokens a second, without the first one, which belongs to prefill; None below two tokens."""
        if self.generated_tokens < 2 or self.decode_ms <= 0:
            return None
        return (self.generated_tokens - 1) / self.decode_ms * 1000

    @property
    def plain_tps(self) -> float | None:
        """Tokens a second that plain decoding would reach here; None where that was not measured.

        A plain step takes no longer than a round: where the drafted reply's target calls were quicker, they count.
        """
        return 1000 / min(self.plain_step_ms, self._drafted_step_ms) if self.plain_step_ms else None

    @property
    def speedup(self) -> float | None:
        """How many times as fast as plain decoding the reply is; None where plain decoding was not measured.

        It is None on a busy computer too: both speeds were measured at different loads.
        """
        decode = self.decode_tps
        plain = self.plain_tps
        return decode / plain if decode and plain and not self.was_hindered else None

    @property
    def speedup_error(self) -> float:
        """How far `speedup` may be off, as a share of it.

        The baseline is older than the reply, and each call of a short reply counts for much. By as much as a plain
        step took longer than the reply's own target calls, the baseline is wrong.
        """
        error = self.plain_error * sqrt(1 + 1 / max(self.target_calls, 1))
        return max(error, self.plain_step_ms / self._drafted_step_ms - 1)

    @property
    def _drafted_step_ms(self) -> float:
        """Mean time of a target call, plain step or round, of a drafted reply; infinite where that is not known."""
        return self.decode_ms / self.target_calls if self.rounds and self.target_calls and self.decode_ms else inf

    @property
    def settled(self) -> bool:
        """Whether the reply is long enough for a comparison with plain decoding."""
        return self.generated_tokens >= _ENOUGH_TOKENS or self.decode_ms >= _ENOUGH_MS

    @property
    def speedup_range(self) -> tuple[float, float] | None:
        """Between which two values `speedup` lies; None without drafts, before the reply is `settled`, or if unknown.

        A reply decoded plainly is its own measure of plain decoding, and a fresher one.
        """
        if not (self.speedup and self.rounds and self.settled) or self.speedup_error > _UNKNOWN:
            return None
        error = max(self.speedup_error, _ALIKE) + _ROUNDING
        return self.speedup / (1 + error), self.speedup / (1 - error)

    @property
    def as_fast(self) -> bool:
        """Whether the reply was as fast as plain decoding, within an error that is small."""
        low, high = self.speedup_range or (inf, inf)
        return low <= 1 <= high and high - low < _NARROW

    @property
    def was_hindered(self) -> bool:
        """Whether other programs kept the computer so busy that nothing can be said of the speed."""
        return self.others_share is not None and self.others_share > machine.MAX_OTHERS

    @property
    def checked_per_step(self) -> float | None:
        """Rows of a target call, those of plain steps included; None in plain decoding."""
        rows = self.verified_nodes + self.target_calls - self.rounds
        return rows / self.target_calls if self.verified_nodes and self.target_calls else None

    @property
    def prefill_tps(self) -> float | None:
        """Prompt tokens processed a second; cached ones do not count."""
        processed = self.prompt_tokens - self.cached_prompt_tokens
        finished = self.ttft_ms > 0
        return processed / self.prefill_ms * 1000 if finished and self.prefill_ms > 0 and processed > 0 else None

    @property
    def drafted_rounds(self) -> int:
        """Rounds that offered a draft: prompt lookup may find nothing to offer."""
        return self.rounds - sum(self.drafted_lengths[:1])

    @property
    def lengths_of_drafts(self) -> tuple[int, ...]:
        """`accepted_lengths` without the rounds that offered no draft."""
        none, *some = self.accepted_lengths or (0,)
        return none - sum(self.drafted_lengths[:1]), *some

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Acceptance by draft position from the first on: tokens accepted there divided by tokens offered there."""
        offered = [sum(self.drafted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        accepted = [sum(self.accepted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        return tuple(a / o for a, o in zip(accepted, offered, strict=True) if o)

    @property
    def tokens_per_target_call(self) -> float | None:
        """Decoded tokens for each target call; None below two tokens, as for `decode_tps`."""
        if self.generated_tokens < 2 or not self.target_calls:
            return None
        return (self.generated_tokens - 1) / self.target_calls
