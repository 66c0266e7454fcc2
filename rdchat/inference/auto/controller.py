"""Decides, before each target call of a reply, whether it is a plain step or a round, and what the round drafts.

Nothing here knows MLX, a clock or a network. `control_loop` asks it, in real decoding as in simulations.
"""

from collections.abc import Sequence

from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.acceptance import AcceptanceEstimates
from rdchat.inference.auto.plan import MOST_ROWS, PLAIN, Choice, Floats, Plan
from rdchat.inference.auto.planner import Planner, in_words
from rdchat.inference.auto.sources import Source, lookup_drafts
from rdchat.inference.drafting.lookup_index import LookupIndex

_PLAIN_EVERY = 40  # rounds: plain steps are timed again, where they might be as quick
_SURELY_FASTER = 1.5  # than plain steps
_PLAIN_STEPS = 3  # of which one is timed: the first has nothing before it, and the last nothing behind it
_MARGIN = 0.03  # by which drafting must look faster than plain steps to begin with it
_GRANT = 0.2  # tokens that a reply may lose on rounds that are made to learn
_SHARE = 0.006  # of its tokens, that it may lose besides
_MOST_SAVED = 1.0  # tokens of both that it keeps for later
_DEBT = 0.1  # tokens by which one trial may exceed what is left


class Controller:
    """The automatic mode of one reply.

    Args:
        planner: Compares drafts.
        estimates: How far drafts are followed.
        prompt: Token ids.
        sources: The drafters besides prompt lookup.

    Attributes:
        text: Token ids of the prompt and of the reply up to now.
        index: Looks the text's ending up in it.
        plan: What the current call is.
    """

    def __init__(
        self, planner: Planner, estimates: AcceptanceEstimates, prompt: Sequence[int], sources: Sequence[Source] = ()
    ) -> None:
        estimates.begin_text()
        self.text, self.index, self.plan = list(prompt), LookupIndex(list(prompt)), PLAIN
        self._planner, self._costs, self._estimates = planner, planner.costs, estimates
        self._sources = list(sources)
        self._choice: Choice | None = None  # the best one that drafts
        self._budget = _GRANT
        self._rounds = 0  # since the last plain step
        self._plain_steps = 0  # to come before the next round
        self._is_trial = False  # whether the round is made to learn from it

    @property
    def status(self) -> AutoChoice:
        """What is done now, and why."""
        plan, choice = self.plan, self._choice
        if plan == PLAIN or choice is None:
            return AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, in_words(choice, False, self._costs.measured))
        words = in_words(choice, True, True)
        return AutoChoice(plan.mode.value, plan.width, plan.length, choice.tokens, choice.cost, words)

    # Decisions

    def wants_round(self, limit: int) -> bool:
        """Tell whether to draft below the last token, where no plain step is queued; `plan` then says what.

        Args:
            limit: Tokens that may be drafted.
        """
        self._choice = choice = self._choose(limit, self._path(limit))
        if choice is None:
            return False
        if self._rounds >= _PLAIN_EVERY and choice.speedup < _SURELY_FASTER:
            self._plain_steps = _PLAIN_STEPS
            return False
        loses = choice.gain <= -self._switch / 4
        self._is_trial = loses and self._may_try(choice)
        if loses and not self._is_trial:
            return False
        self._change(choice.plan)
        self._rounds += 1
        return True

    def wants_to_stop(self, limit: int) -> bool:
        """Tell whether the call for the token that is being computed should wait, since it may better be a round.

        Args:
            limit: Tokens that might be drafted below that token.
        """
        self._plain_steps = max(self._plain_steps - 1, 0)
        if limit < 1 or self._plain_steps:
            return False
        # the first token that prompt lookup finds is the one being computed: drafts begin behind it
        self._choice = choice = self._choose(limit, self._path(1 + limit)[1:])
        if choice is None:
            return False
        # some rounds follow, so a part of the change's cost is enough
        return choice.gain > self._switch / 4 + _MARGIN * choice.cost or self._may_try(choice)

    def begins_ahead(self, limit: int) -> BeamShape | None:
        """Return the shape of a head's draft to begin before the host knows what this round brings; None for none.

        It saves about what a lone call takes longer than a queued one, and is in vain where no such round follows.

        Args:
            limit: Tokens that may be drafted below the token that the round ends with.
        """
        plan, depth = self.plan, len(self.text)
        if plan.mode is not Mode.DRAFTER or plan.length > 1 + limit:
            return None
        shape, follows = BeamShape(plan.width, plan.length), self._estimates.follows.value
        saved = self._switch * self._costs.plain_ms(depth)
        return shape if follows * saved > (1 - follows) * self._costs.beam_ms(shape) else None

    def leave_out(self, mode: Mode) -> None:
        """Plan no more drafts of a drafter in this reply."""
        self._sources = [source for source in self._sources if source.mode is not mode]

    # What came

    def took_round(self, tokens: Sequence[int], ms: float, usual: bool, ended: bool = False) -> None:
        """Take a round.

        Args:
            tokens: The tokens that it added, the target's own last.
            ms: Its time.
            usual: Whether nothing else was done in it.
            ended: Whether the reply ended with it.
        """
        plan, choice = self.plan, self._choice
        assert choice is not None
        for source in self._sources:
            if source.mode is plan.mode:
                source.estimate.learn(plan.length - 1, plan.nodes, len(tokens) - 1, ended)
        if self._is_trial:  # charged by half for what it promised to lose, by half for what it lost
            self._spend(self._switch - choice.gain + (choice.tokens - len(tokens)) / 2)
        self._take(tokens)
        if usual:
            self._costs.learn(plan.mode, ms / choice.ms)

    def took_step(self, token: int, ms: float, usual: bool) -> None:
        """Take a plain step; arguments as for `took_round`."""
        if usual:
            self._costs.learn_plain(len(self.text), ms)
        self._change(PLAIN)
        self._rounds = 0
        self._estimates.go_untried()
        self._take([token])

    def begin(self, token: int) -> None:
        """Take the first token, which comes with the prefill."""
        self._take([token])

    def _take(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for guess in self.index.guesses(1):
                self._estimates.lookup.learn(guess, token)
            self.text.append(token)
            self.index.extend([token])
        self._spend(-_SHARE * len(tokens))

    def _change(self, plan: Plan) -> None:
        """Make another call; learn whether its draft could have been begun in the one before."""
        before, self.plan = self.plan, plan
        if before.mode is Mode.DRAFTER:
            self._estimates.follows.learn(plan.mode is Mode.DRAFTER and plan.length <= before.length)

    # What can be drafted

    def _choose(self, limit: int, path: Floats) -> Choice | None:
        """Return the best draft.

        Args:
            limit: Tokens that may be drafted.
            path: (tokens,) what `_path` gave.
        """
        limit = min(limit, MOST_ROWS - 1)
        drafts = [source.drafts(limit) for source in self._sources]
        if path.size:
            drafts.append(lookup_drafts(path[:limit]))
        return self._planner.choose(len(self.text), drafts)

    def _path(self, limit: int) -> Floats:
        """Return (tokens,) the chance that a path from prompt lookup is accepted up to each token; empty without."""
        return self._estimates.lookup.path(self.index.guesses(min(limit, MOST_ROWS)))

    def _may_try(self, choice: Choice) -> bool:
        """Tell whether a round that looks no better than a plain step may be made to learn from it."""
        return choice.plan.mode is not Mode.LOOKUP and self._switch - choice.gain <= self._budget

    def _spend(self, tokens: float) -> None:
        self._budget = min(max(self._budget - tokens, -_DEBT), _MOST_SAVED)

    @property
    def _switch(self) -> float:
        return self._planner.switch_tokens(len(self.text))
