"""The automatic mode's decisions for one reply: before each target call, a plain step or a round, and which draft.

A plain step takes one token; the next step may be queued before its token is read. A round verifies a draft. Gains,
costs of switching and the budget of trial rounds are counted in tokens. Nothing here depends on MLX or a clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rdchat.inference.api import AutoChoice, EarlierReplies, Mode
from rdchat.inference.auto.cost_model import MAX_ROWS
from rdchat.inference.auto.planner import AcceptanceEstimates, Choice, Plan, Planner, Source, explanation, lookup_drafts
from rdchat.inference.decoding.loop import Call, CallResult, RoundPlan
from rdchat.inference.drafting.lookup_index import LookupIndex, LookupTree, NgramModel

# After this many rounds plain steps are timed again, unless rounds are surely faster.
_PLAIN_EVERY = 40
_SURELY_FASTER = 1.5
# Plain steps in a row, of which the middle one is timed: nothing is queued before the first or after the last.
_PLAIN_STEPS = 3
# Expected gain that is needed to begin drafting: tokens for each plain step that the round takes.
_MARGIN = 0.03
# Share of the learned acceptance that is kept for the next reply, and after each plain step: the text that follows may
# be easier to draft.
_OTHER_TEXT = 0.5
_AFTER_STEP = 0.99
# The budget of a reply: tokens that it may lose to trial rounds. It has so many at the start.
_START_BUDGET = 0.2
# Each token of the reply adds so many.
_BUDGET_PER_TOKEN = 0.006
# Maximum of that budget, in tokens.
_MAX_BUDGET = 1.0
# Tokens by which one trial may overdraw the budget.
_MAX_DEBT = 0.1
# Chance that a token forced by the answer's shape is accepted: the model may split the same text into other tokens.
_FORCED_CHANCE = 0.98
# Minimum chance of a node that prompt lookup drafts.
_MIN_CHANCE = 0.03
_COMPARING = "Timing plain decoding for a moment, to compare."
# After a delayed call, the times of so many calls are ignored, its own included.
_IGNORED_CALLS = 2


@dataclass(frozen=True, slots=True, eq=False)
class ChosenRound(RoundPlan):
    """The plan of a round of the automatic mode.

    Attributes:
        choice: What to draft, and what is expected of it.
        looked_up: What prompt lookup expects to come next, or what the answer's shape forces.
        is_forced: Whether the answer's shape forces it.
        is_trial: Whether it is made to learn how much is accepted, although a plain step looks better.
    """

    choice: Choice
    looked_up: LookupTree
    is_forced: bool = False
    is_trial: bool = False


class Controller:
    """The automatic mode of one reply: the third policy of the loop.

    Args:
        planner: Compares drafts.
        estimates: Estimates of acceptance.
        prompt: Token ids.
        sources: The drafters besides prompt lookup.
        trees: Whether the target verifies trees; otherwise prompt lookup drafts chains.
        earlier: Earlier replies, if prompt lookup may use them.
        ngrams: What often follows the last tokens, by n-grams; None for nothing.
        forced: Returns the tokens that the answer's shape leaves no choice for, at most as many as its argument.

    Attributes:
        text: Token ids of the prompt and the reply so far.
    """

    def __init__(
        self,
        planner: Planner,
        estimates: AcceptanceEstimates,
        prompt: Sequence[int],
        sources: Sequence[Source] = (),
        *,
        trees: bool = True,
        earlier: EarlierReplies | None = None,
        ngrams: NgramModel | None = None,
        forced: Callable[[int], Sequence[int]] = lambda _limit: (),
    ) -> None:
        estimates.keep_share(_OTHER_TEXT)
        self.text = list(prompt)
        self._index = LookupIndex(prompt, estimates.lookup, earlier, ngrams)
        self._trees = trees
        self._forced = forced
        self._planner = planner
        self._costs = planner.costs
        self._estimates = estimates
        self._sources = list(sources)
        # The best draft at the last decision, whether or not it was taken; None where nothing could be drafted.
        self._choice: Choice | None = None
        # Whether the last call was a round; the first token counts as none.
        self._last_was_round = False
        # Tokens that trial rounds may still lose.
        self._budget = _START_BUDGET
        # Rounds since the last plain step.
        self._rounds_in_a_row = 0
        # Plain steps to come before the next round: `plan_round` asks for some where they are to be timed again, and
        # each one that was made counts down.
        self._plain_steps_due = 0
        # Whether a draft was made in this reply.
        self._has_drafted = False
        # Whether a plain step is queued.
        self._is_queued = False
        # Calls, from the next one on, whose times are ignored.
        self._ignored_calls = _IGNORED_CALLS

    @property
    def status(self) -> AutoChoice:
        """The current decision, with its expected gain or the reason why nothing is drafted."""
        choice = self._choice
        if choice is None or not self._last_was_round:
            known = self._costs.measured or self._has_drafted
            # There is something to draft with, but no plain step was timed yet, so `_choose` returns None.
            undecided = known and choice is None and self._sources
            compares = self._plain_steps_due or undecided
            text = _COMPARING if compares else explanation(choice, False, known, self._costs.reads)
            speedup = round(choice.speedup, 3) if choice else 1.0
            return AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, text, speedup if self._costs.measured else None)
        text = explanation(choice, True, True)
        plan = choice.plan
        return AutoChoice(plan.mode.value, plan.width, plan.length, choice.tokens, choice.cost, text)

    # Decisions

    def plan_round(self, room: int) -> ChosenRound | None:
        """See `Policy`.

        A plain step follows if nothing can be drafted; if plain steps are to be timed again; or if the best draft loses
        more than a quarter of a switch and may not be tried.
        """
        forced = self._forced(room)
        looked_up = self._look_up(room, forced)
        choice = self._choose(room, looked_up)
        self._choice = choice
        if choice is None:
            return None
        if self._rounds_in_a_row >= _PLAIN_EVERY and choice.speedup < _SURELY_FASTER:
            self._plain_steps_due = _PLAIN_STEPS
            return None
        # Several rounds share the cost of a switch, so each has to earn only a part of it; see `wants_queue`.
        loses = choice.gain <= -self._switch / 4
        if loses and not self._may_try(choice):
            return None
        return ChosenRound(choice, looked_up, is_forced=bool(forced), is_trial=loses)

    def wants_queue(self, room: int) -> bool:
        """See `Policy`; nothing is queued where a round may be better.

        Without room nothing is queued. While plain steps are due, or with room for one token alone, a step is.
        Otherwise one is, unless the best draft gains more than a quarter of a switch and a margin, or may be tried.
        """
        if room < 1:
            return False
        # The step that comes now is the first of those that are due.
        if room < 2 or self._plain_steps_due > 1:
            return True
        # The first token that prompt lookup finds is the one being computed: drafts begin after it.
        choice = self._choose(room - 1, self._look_up(room, self._forced(room)).first_subtree())
        self._choice = choice
        if choice is None:
            return True
        # Several rounds will follow, so a part of the cost of switching is enough.
        return choice.gain <= self._switch / 4 + _MARGIN * choice.cost and not self._may_try(choice)

    def begins_ahead(self, plan: Plan, limit: int) -> bool:
        """Return whether to begin the next draft of a head before the host has read this round's result.

        It saves about as much as a single call takes longer than a queued one.

        Args:
            plan: The round's.
            limit: Tokens that may be drafted below the round's last token.
        """
        return plan.mode is Mode.DRAFTER and plan.length <= 1 + limit and self._switch > 0

    def stop_drafter(self, mode: Mode) -> None:
        """Stop using a drafter in this reply."""
        self._sources = [source for source in self._sources if source.mode is not mode]

    # Results

    def saw(self, done: CallResult[object]) -> None:
        """See `Policy`.

        Times are ignored after a delay, and for a step that was not queued: it takes longer than a queued one.
        """
        is_round = done.call is Call.ROUND
        if done.held_up:
            self._ignored_calls = _IGNORED_CALLS
        elif not is_round and not self._is_queued:
            self._ignored_calls = max(self._ignored_calls, 1)
        # A time is typical if nothing delayed the call. A step with nothing queued after it may have been computed
        # before the wait began, so its time may be too short.
        usual = done.usual and not self._ignored_calls and (is_round or done.queued)
        self._is_queued = done.queued
        self._ignored_calls = max(self._ignored_calls - 1, 0)
        self._learn(done, usual)
        self.text += done.tokens
        self._index.extend(done.tokens)
        self._spend(-_BUDGET_PER_TOKEN * len(done.tokens))

    def _learn(self, done: CallResult[object], usual: bool) -> None:
        """Learn from a call; from its time only where that is `usual` for its plan."""
        planned = done.plan
        if not isinstance(planned, ChosenRound):
            if done.call is Call.STEP:
                self._learn_step(done.ms, usual)
            return
        choice = planned.choice
        plan = choice.plan
        tokens = len(done.tokens)
        self._rounds_in_a_row += 1
        self._last_was_round = True
        self._has_drafted = True
        for source in self._sources:
            if source.mode is plan.mode:
                source.estimate.learn(plan.length - 1, plan.nodes, tokens - 1, done.ended)
        # The budget pays half of the expected loss and half of the actual one.
        if planned.is_trial:
            self._spend(self._switch - choice.gain + (choice.tokens - tokens) / 2)
        if usual:
            self._costs.learn(plan.mode, done.ms / choice.ms)

    def _learn_step(self, ms: float, usual: bool) -> None:
        if usual:
            self._costs.learn_plain(len(self.text), ms)
        self._last_was_round = False
        self._rounds_in_a_row = 0
        self._plain_steps_due = max(self._plain_steps_due - 1, 0)
        self._estimates.keep_share(_AFTER_STEP)

    # Possible drafts

    def _choose(self, limit: int, looked_up: LookupTree) -> Choice | None:
        """Return the best draft.

        Args:
            limit: Tokens that may be drafted.
            looked_up: What prompt lookup can draft.
        """
        limit = min(limit, MAX_ROWS - 1)
        drafts = [source.drafts(limit) for source in self._sources]
        if looked_up.tokens:
            drafts.append(lookup_drafts(looked_up.cut(MAX_ROWS - 1)))
        return self._planner.best_draft(len(self.text), drafts)

    def _look_up(self, limit: int, forced: Sequence[int]) -> LookupTree:
        """Return what prompt lookup expects to come next, up to `limit` deep, or what the answer's shape forces."""
        if forced:
            return LookupTree.chain(forced, _FORCED_CHANCE)
        return self._index.draft_tree(MAX_ROWS, limit, _MIN_CHANCE, chain=not self._trees)

    def _may_try(self, choice: Choice) -> bool:
        """Return whether the budget allows a trial round, made to learn although a plain step looks better.

        Prompt lookup gets no trials.
        """
        return choice.plan.mode is not Mode.LOOKUP and self._switch - choice.gain <= self._budget

    def _spend(self, tokens: float) -> None:
        """Take tokens from the budget, or add them where the number is below 0."""
        self._budget = min(max(self._budget - tokens, -_MAX_DEBT), _MAX_BUDGET)

    @property
    def _switch(self) -> float:
        """The cost of a switch between rounds and plain steps, in tokens; see `Planner.switch_tokens`."""
        return self._planner.switch_tokens(len(self.text))
