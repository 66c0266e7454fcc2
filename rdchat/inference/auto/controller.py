"""Decides, before each target call of a reply, what it is: a plain step, or a round with some draft.

State in, decision out: nothing here knows MLX, a clock or a network. `control_loop` asks and tells it, in real decoding
as in simulations.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import BeamShape, Mode
from rdchat.inference.auto.costs.cost_curve import Floats
from rdchat.inference.auto.draft_table import ChainSource, DraftSource, HeadSource, lookup_table
from rdchat.inference.auto.estimates.acceptance_estimates import AcceptanceEstimates, DraftValues
from rdchat.inference.auto.estimates.draft_comparison import DraftComparison
from rdchat.inference.auto.exploration_budget import ExplorationBudget
from rdchat.inference.auto.plan import DRAFT_TOKENS, MOST_ROWS, PLAIN, Choice
from rdchat.inference.auto.planner import Planner, in_words
from rdchat.inference.auto.wait_policy import WaitPolicy
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.drafting.node_pool import HostPool, NodePool

OFF_PATH = 2.0  # time of an off-path draft over a draft when costs are measured: its weights are not at hand then
_PLAIN_EVERY = 40  # rounds: what plain steps cost is looked at again, where they might be as quick
_SURELY_FASTER = 1.5  # than plain steps
_LOOKS = 3  # plain steps of which one tells: the first has nothing before it, and the last nothing behind it
_MARGIN = 0.03  # by which drafting must look faster than plain steps to begin with it
_CUT_OFF = 3  # drafts one after the other that were cut to the root: those were plain steps
_LATE = 4  # tokens that a draft model catches up with; a round with more says little of other rounds
_NO_PATH: Floats = np.empty(0)


class Controller:
    """The automatic mode of one reply.

    Args:
        planner: Compares drafts.
        estimates: How far drafts are followed.
        prompt: Token ids.
        head: The drafter head; None without.
        chains: The draft model; None without.

    Attributes:
        text: Token ids of the prompt and what came since.
        index: Looks the text's ending up in it.
        plan: What is done at this moment.
    """

    def __init__(
        self,
        planner: Planner,
        estimates: AcceptanceEstimates,
        prompt: Sequence[int],
        head: HeadSource | None = None,
        chains: ChainSource | None = None,
    ) -> None:
        estimates.begin_text()
        self.text, self.index, self.plan = list(prompt), LookupIndex(list(prompt)), PLAIN
        self._planner, self._costs, self._estimates = planner, planner.costs, estimates
        self._head, self._chains = head, chains
        self._sources: list[DraftSource] = [source for source in (chains, head) if source]
        values = head.values if head else DraftValues()
        self._comparison = DraftComparison(estimates.nodes, values)
        self._budget = ExplorationBudget(values.drafts if head else None)
        self._choice: Choice | None = None  # the best one that drafts
        self._made: Choice | None = None  # the one of the last round, as it turned out
        self._rounds = 0  # since the last plain steps
        self._looks = 0  # plain steps to come before the next round, to see what they cost
        self._trial = False  # whether the round that is made, or wanted, is to learn from
        self._usual = True  # whether what the last round drafted is what its plan was charged for
        self._cut = 0  # heads' drafts up to now, one after the other, of which nothing was verified
        self._waits = WaitPolicy(planner, estimates, drafts_ahead=head is not None and head.drafts_ahead)
        self._waits.decide(1 / (self._costs.plain_ms(len(self.text)) or np.inf))

    @property
    def told(self) -> AutoChoice:
        """What is done at this moment, and why."""
        plan, choice = self.plan, self._choice
        if plan == PLAIN or choice is None:
            return AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, in_words(choice, False, self._costs.measured))
        words = in_words(choice, True, True)
        return AutoChoice(plan.mode.value, plan.width, plan.length, choice.tokens, choice.cost, words)

    # Decisions

    def wants_round(self, limit: int) -> bool:
        """Tell whether to draft below the last token, now that nothing is queued; `plan` then says what.

        Args:
            limit: Tokens that may be drafted.
        """
        self._choice = choice = self._choose(limit, self._path(limit))
        if choice is None:
            return False
        if self._rounds >= _PLAIN_EVERY and choice.speedup < _SURELY_FASTER:
            self._looks = _LOOKS
            return False
        worse = choice.gain <= (self._least(choice) if self._cut >= _CUT_OFF else -self._switch / 4)
        self._trial = (worse or (self._trial and self._price(choice) > 0)) and self._may_try(choice)
        if worse and not self._trial:
            return False
        self._waits.followed(self.plan, choice.plan)
        self.plan, self._made, self._usual = choice.plan, choice, True
        self._rounds += 1
        return True

    def wants_to_stop(self, limit: int) -> bool:
        """Tell whether the call for the token that is being computed should wait, since it may better be a round.

        Args:
            limit: Tokens that might be drafted below that token.
        """
        self._looks, self._trial = max(self._looks - 1, 0), False
        if limit < 1 or self._looks:
            return False
        path = self._path(1 + limit)
        otherwise = self._choose(limit)
        if not path.size:
            self._choice = otherwise
            if otherwise is None:
                return False
            if otherwise.gain > self._least(otherwise):
                return True
            self._trial = self._may_try(otherwise)
            return self._trial
        # prompt lookup has a guess of the token that is being computed: a path goes on behind it
        right = float(path[0])
        best = self._choose(limit, path[1:] / right)
        if best is None:
            self._choice = None
            return False
        instead = max(otherwise.gain if otherwise else -np.inf, -self._switch)
        expected = right * best.gain + (1 - right) * instead
        # told while decoding plainly: what is to be had for sure, or else that path as likely as it is
        self._choice = otherwise or replace(best, tokens=1 + right * (best.tokens - 1))
        return expected > self._least(best)

    def off_path(self) -> BeamShape | None:
        """Return the shape of a draft that should be compared with the text; None where none should be."""
        if self._head is None:
            return None
        if not self._head.values.drafts + self._comparison.waiting:
            return self._head.longest
        choice = self._choice
        if choice is None or choice.plan.mode is not Mode.DRAFTER:
            return None
        shape = BeamShape(choice.plan.width, choice.plan.length)
        price = OFF_PATH * self._costs.beam_ms(shape, len(self.text)) / choice.plain_ms
        if price > self._price(choice) or not self._budget.affords(price):
            return None
        self._budget.spend(price)
        return shape

    # What a round drafts

    def beams(self, limit: int) -> BeamShape:
        """Return the shape of the head's draft that the plan asks for."""
        return BeamShape(self.plan.width, min(self.plan.length, 1 + limit))

    @property
    def cuts(self) -> bool:
        """Whether a head's draft is looked at before it is verified, which the host has to wait for.

        Not by what calls are guessed to cost, and only where it saves more than the wait costs on this device.
        """
        return self._costs.measured and self._waits.cuts

    def cut(self, pool: HostPool) -> None:
        """Take a head's draft, and plan with as many nodes of it as pay, perhaps the root alone."""
        assert self._made is not None
        accepted = self._waits.values(self._made, len(self.text), pool)
        self._made = self._planner.sized(self._made, len(self.text), accepted)
        self.plan = self._made.plan
        self._cut = self._cut + 1 if self.plan.nodes == 1 else 0

    def draft_dropped(self) -> None:
        """Take that a head's draft was dropped instead of being cut: the call is a plain step's."""
        self._usual = False

    def take_dropped(self) -> int:
        """Return how many off-path drafts with scores that are not finite were found since the last call."""
        return self._comparison.take_dropped()

    def leave_out(self, mode: Mode) -> None:
        """Plan no more drafts of a drafter in this reply."""
        if mode is Mode.DRAFTER:
            self._head = None
        elif mode is Mode.SPECULATIVE:
            self._chains = None
        self._sources = [source for source in (self._chains, self._head) if source]

    def compare(self, pool: NodePool[Any], offered: bool) -> None:
        """Have a head's draft below the last token compared with the text; the device may still work on it."""
        self._comparison.add(len(self.text), pool, offered)
        if offered and not self.cuts:
            self._waits.left_uncut(pool)

    def ahead(self, limit: int) -> BeamShape | None:
        """Return the shape of a head's draft to begin before the host knows what this round brings; None for none.

        Args:
            limit: Tokens that may be drafted below the token that the round ends with.
        """
        return self._waits.ahead(self.plan, limit, len(self.text))

    @property
    def runner_ups(self) -> tuple[int, ...]:
        """Runner-ups beside each token of the draft model that the plan asks for."""
        return DraftShape.of_size(self.plan.length - 1, self.plan.nodes).runner_ups

    def goes_on(self, margins: Sequence[float], limit: int) -> bool:
        """Tell whether a draft model should draft another token.

        Args:
            margins: Of those it has drafted (`CandidateRanker.rank`).
            limit: Tokens that may be drafted.
        """
        on = self._worth_more(margins, min(DRAFT_TOKENS[-1], limit))
        self._waits.went_on(on)
        return on

    @property
    def drafts_on(self) -> bool:
        """Whether a draft model's next step is queued before it is known whether the draft goes on."""
        return self._waits.drafts_on

    def keeps(self, margins: Sequence[float]) -> bool:
        """Tell whether a token that a draft model drafted in vain, behind those of `margins`, is worth its row."""
        return self._worth_more(margins, len(margins) + 1, drafted=True)

    def _worth_more(self, margins: Sequence[float], most: int, drafted: bool = False) -> bool:
        """Tell whether a chain should be longer than its `margins`; see `Planner.goes_on`."""
        assert self._choice is not None
        rates, beside = self._estimates.chains, self.runner_ups
        known = [rates.chance_of(margin) for margin in margins]
        further = range(len(known), most + 1)
        nodes = [DraftShape(steps, beside[:steps]).nodes for steps in further]
        accepted = [rates.expected(steps, beside, known) for steps in further]
        return self._planner.goes_on(self._choice, len(self.text), nodes, accepted, drafted)

    def chain_drafted(self, margins: Sequence[float], steps: int, nodes: int, behind: int) -> None:
        """Take what a draft model drafted.

        Args:
            margins: Of the tokens that were waited for.
            steps: Tokens of the chain; 0 where the draft model's context is full.
            nodes: Of the tree, the root included.
            behind: Tokens that the draft model had not read before.
        """
        assert self._choice is not None
        assert self._chains is not None
        self._usual = behind <= _LATE
        if not steps:
            self._usual = self._trial = False
            return
        rates = self._estimates.chains
        accepted = rates.expected(steps, self.runner_ups, [rates.chance_of(margin) for margin in margins])
        table = self._chains.priced([(steps, accepted, nodes)], behind)
        self._made = self._planner.made(self._choice, len(self.text), table)

    @property
    def rows(self) -> int:
        """Rows to verify the draft with."""
        assert self._made is not None
        return self._made.plan.rows

    # What came

    def begin(self, token: int) -> None:
        """Take the first token, which comes with the prefill."""
        self._take([token])

    def chain_came(self, margins: Sequence[float], right: Sequence[bool], accepted: int) -> None:
        """Take what came of a draft model's tokens; one that ends the reply was accepted as any other.

        Args:
            margins: Of its first choices.
            right: Whether each of them was the text's.
            accepted: The accepted length; one more where a runner-up was taken.
        """
        chain = [*right, False].index(False)
        self._estimates.chains.learn(margins[: len(right)], chain, max(accepted, chain), self.runner_ups)

    def took_round(self, tokens: Sequence[int], ms: float, usual: bool) -> None:
        """Take a round.

        Args:
            tokens: That it added, the target's own last.
            ms: Its time.
            usual: Whether nothing else was done in it.
        """
        made = self._made
        assert made is not None
        self._waits.round_ended(made, len(self.text))
        self._take(tokens)
        self._budget.earn(len(tokens))
        if self._trial:
            came = replace(made, tokens=len(tokens))
            self._budget.spend_on_round(self._price(made), self._switch - came.gain)
            self._trial = False
        if usual and self._usual:
            self._costs.learn(made.plan, ms / made.ms)

    def took_step(self, token: int, ms: float, usual: bool) -> None:
        """Take a plain step; arguments as for `took_round`."""
        self._budget.earn(1)
        if usual:
            self._costs.learn_plain(len(self.text), ms)
        self._waits.followed(self.plan, PLAIN)
        self.plan = PLAIN
        self._rounds = self._cut = 0
        self._estimates.chains.go_untried()
        self._take([token])

    def end(self) -> None:
        """Learn from the drafts in which the reply ended."""
        self._comparison.look(self.text, ended=True)

    def _take(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for guess in self.index.guesses(1):
                self._estimates.lookup.learn(guess, token)
            self.text.append(token)
            self.index.extend([token])
        self._comparison.look(self.text)

    # What is to be had

    def _choose(self, limit: int, path: Floats = _NO_PATH) -> Choice | None:
        """Return the best draft.

        Args:
            limit: Tokens that may be drafted.
            path: What `_path` gave, for these or some more of them; empty leaves prompt lookup out.
        """
        limit = min(limit, MOST_ROWS - 1)
        path = path[:limit]
        steady = [table for source in self._sources if (table := source.table(limit, len(self.text))) is not None]
        passing = [table] if (table := lookup_table(path, limit)) else []
        if steady and steady[-1].mode is Mode.DRAFTER and not self._waits.cuts:
            steady[-1] = self._waits.at_once(steady[-1])
        return self._planner.choose(len(self.text), steady, passing)

    def _path(self, limit: int) -> Floats:
        """Return (tokens,) the chance that a path from prompt lookup is accepted up to each token; empty without."""
        return self._estimates.lookup.path(self.index.guesses(min(limit, MOST_ROWS)))

    def _may_try(self, choice: Choice) -> bool:
        """Tell whether a round that looks no better than a plain step may be made to learn from it."""
        return choice.plan.mode is not Mode.LOOKUP and self._budget.affords(self._price(choice))

    def _least(self, choice: Choice) -> float:
        """Return the gain above which drafting begins: some rounds follow, so a part of the change's cost is enough."""
        return self._switch / 4 + _MARGIN * choice.cost

    def _price(self, choice: Choice) -> float:
        """Return how many tokens a choice looks like losing."""
        return max(self._switch - choice.gain, 0.0)

    @property
    def _switch(self) -> float:
        return self._planner.switch_tokens(len(self.text))
