"""The automatic mode's drafter: before each target call it picks who drafts, and how much, or nobody."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import override

import mlx.core as mx
import numpy as np

from rdchat.inference.api.reply_statistics import AutoChoice
from rdchat.inference.api.requests import BeamShape, GenerationRequest, Mode
from rdchat.inference.auto.acceptance_estimates import value_by_nodes
from rdchat.inference.auto.curve import Floats
from rdchat.inference.auto.off_path_draft import DraftComparison, on_host
from rdchat.inference.auto.plan import (
    DRAFT_TOKENS,
    LENGTHS,
    LONGEST,
    MOST_ROWS,
    PLAIN,
    WIDEST,
    WIDTHS,
    Choice,
    Plan,
)
from rdchat.inference.auto.planner import Allowance, Outlook, in_words
from rdchat.inference.auto.state import AutoState
from rdchat.inference.decoding.autoregressive import Step
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.candidates import DraftShape
from rdchat.inference.drafting.lookup import LookupIndex
from rdchat.inference.drafting.recurrent_drafter import RecurrentSettings
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.verifier import Verified

LARGEST = BeamShape(WIDEST, LONGEST)  # tells of all smaller drafts
SHADOW = 2.0  # what a shadow takes, over the time of a draft when costs are measured: its weights are not at hand then
_WIDE_EVERY = 16  # rounds of the recurrent drafter: that one tells what larger beams would have brought
_PLAIN_EVERY = 40  # rounds: what plain steps cost is looked at again, where they might be as quick
_SURELY_FASTER = 1.5  # than plain steps
_LOOKS = 3  # plain steps of which one tells: the first has nothing before it, and the last nothing behind it
_MARGIN = 0.03  # by which drafting must look faster than plain steps to begin with it
_NOTHING: Floats = np.empty(0)
_CUT_OFF = 3  # drafts one after the other that were cut to the root: those were plain steps
_LATE = 4  # tokens that a draft model catches up with; a round with more says little of other rounds


class AutoDrafter(Drafter):
    """Drafts for one reply by the best plan; see `Drafter`.

    A plain step is a round in which nothing is drafted, and the drafters are told of it as of one.

    Args:
        state: What is known of the target and its drafters.
        prompt: Token ids.
        request: What was asked.
        ledger: Takes the time of its stages.
    """

    def __init__(self, state: AutoState, prompt: list[int], request: GenerationRequest, ledger: Ledger) -> None:
        equipment = state.equipment
        self._costs, self._planner = state.costs, state.planner
        self._followed = state.followed(request.sampling)
        self._comparison = DraftComparison(self._followed)
        self._text = list(prompt)
        self._index = LookupIndex(prompt)
        self._ledger = ledger
        alone = RecurrentSettings(lookup_branch=False)
        recurrent, small = equipment.recurrent, equipment.draft_model
        self._recurrent = recurrent.drafter(prompt, request, alone, ledger) if recurrent else None
        self._draft_model = small.drafter(prompt, request, ledger=ledger) if small else None
        self._parts: list[Drafter] = [part for part in (self._recurrent, self._draft_model) if part]
        self._shapes = [shape for steps in DRAFT_TOKENS for shape in small.shapes(steps)] if small else []
        self._followed.chains.begin_text()
        self._followed.values.begin_text()
        self._planner.fade()
        self._choice: Choice | None = None  # the best plan that drafts
        self._made: Choice | None = None  # the one of the last round, as it turned out
        self._drafted: mx.array  # a draft model's tokens in it
        self._do(PLAIN)
        self._beam_rounds = 0
        self._rounds = 0  # since the last plain steps
        self._looks = 0  # plain steps to come before the next round, to see what they cost
        self._trial = False  # whether the round that is made, or wanted, is to learn from
        self._usual = True  # whether what the last round drafted is what its plan was charged for
        self._accepted = 0  # in the last round
        self._cut = 0  # recurrent drafts up to now, one after the other, of which nothing was verified
        self._allowance = Allowance(self._followed.values.drafts if self._recurrent else None)

    @property
    def told(self) -> AutoChoice:
        """What is done at this moment, and why."""
        plan, choice = self._plan, self._choice
        if plan == PLAIN or choice is None:
            return AutoChoice(Mode.OFF.value, 0, 0, 1.0, 1.0, in_words(choice, False, self._costs.measured))
        return AutoChoice(
            plan.mode.value, plan.width, plan.length, choice.tokens, choice.cost, in_words(choice, True, True)
        )

    @override
    def prefill(self, cancelled: Callable[[], bool], ledger: Ledger) -> Iterator[int]:
        """See `Drafter`."""
        for part in self._parts:
            yield from part.prefill(cancelled, ledger)

    @override
    def close(self, length: int) -> None:
        """See `Drafter`."""
        if length:
            self._comparison.look(self._text, ended=True)
        for part in self._parts:
            part.close(length)

    def begin(self, token: int) -> None:
        """Take the first token, which comes with the prefill."""
        self._text.append(token)
        self._index.extend([token])

    def wants_round(self, limit: int) -> bool:
        """Tell whether to draft below the last token, now that nothing is queued; `propose` then does so.

        Args:
            limit: Tokens that may be drafted.
        """
        self._choice = choice = self._planner.choose(self._outlook(limit, self._path(limit)))
        if choice is None:
            return False
        if self._rounds >= _PLAIN_EVERY and choice.speedup < _SURELY_FASTER:
            self._looks = _LOOKS
            return False
        worse = choice.gain <= (self._least(choice) if self._cut >= _CUT_OFF else -self._switch / 4)
        self._trial = (worse or (self._trial and self._price(choice) > 0)) and self._may_try(choice)
        if worse and not self._trial:
            return False
        self._do(choice.plan)
        self._made = choice
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
        otherwise = self._planner.choose(self._outlook(limit))
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
        best = self._planner.choose(self._outlook(limit, path[1:] / right))
        if best is None:
            self._choice = None
            return False
        instead = max(otherwise.gain if otherwise else -np.inf, -self._switch)
        expected = right * best.gain + (1 - right) * instead
        # told while decoding plainly: what is to be had for sure, or else that path as likely as it is
        self._choice = otherwise or replace(best, tokens=1 + right * (best.tokens - 1))
        return expected > self._least(best)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`; by the plan that `wants_round` chose, cut to what pays once it is drafted."""
        plan = self._plan
        for part in self._parts:
            part.propose(root, 0)
        self._usual = True
        if plan.mode is Mode.SPECULATIVE:
            return self._draft_while_it_pays(root, limit)
        if plan.mode is Mode.RECURRENT:
            return self._beams(root, limit)
        chain = [root, *self._look_up(plan.length - 1)]
        return Draft(PackedTree.of(PrefixTree.from_beams([chain])), rows=plan.rows)

    @override
    def observe(self, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        self._accepted = len(path) - 1
        if self._plan.mode is Mode.SPECULATIVE:
            self._learn_chain(tokens)
        for part in self._parts:
            part.observe(tokens, verified, path)
        for token in tokens:
            for guess in self._index.guesses(1):
                self._followed.lookup.learn(guess, token)
            self._text.append(token)
            self._index.extend([token])
        self._comparison.look(self._text)

    def follow(self, root: int, token: int, step: Step) -> None:
        """Take a plain step: `token` came after `root`."""
        self._do(PLAIN)
        self._rounds = self._cut = 0
        self._followed.chains.go_untried()
        for part in self._parts:
            part.propose(root, 0)
        hidden = None if step.hidden is None else step.hidden[0]
        self.observe([token], Verified(step.logits, hidden), [0])

    def draft_in_shadow(self) -> bool:
        """Draft below the last token, now and then, to compare it with the text; tell whether that was done."""
        shadow = self.shadow()
        if self._recurrent is None or shadow is None:
            return False
        shape, price = shadow
        pool = self._recurrent.search(self._text[-1], shape)
        mx.async_eval(pool.tokens, pool.parents, pool.scores)
        self._comparison.add(len(self._text), pool, shape.width, offered=False)
        self._allowance.spend(price)
        return True

    def shadow(self) -> tuple[BeamShape, float] | None:
        """Return the draft that should be compared with the text, and its price in tokens; None where none should."""
        if not self._followed.values.drafts + self._comparison.waiting:
            return LARGEST, 0.0
        choice = self._choice
        if choice is None or choice.plan.mode is not Mode.RECURRENT:
            return None
        shape = BeamShape(choice.plan.width, choice.plan.length)
        beams_ms = self._costs.beams_ms()[WIDTHS.index(shape.width), LENGTHS.index(shape.length)]
        price = SHADOW * float(beams_ms) / choice.plain_ms
        return (shape, price) if price <= self._price(choice) and self._allowance.affords(price) else None

    def took_step(self, ms: float, usual: bool) -> None:
        """Take the time of a plain step; `usual` tells whether nothing else was done in it."""
        self._allowance.earn(1)
        if usual:
            self._costs.learn_plain(len(self._text), ms)

    def took_round(self, ms: float, usual: bool) -> None:
        """Take the time of a round; `usual` as for `took_step`."""
        self._allowance.earn(1 + self._accepted)
        assert self._made is not None
        if self._trial:
            came = replace(self._made, tokens=1 + self._accepted)
            self._allowance.spend_on_round(self._price(self._made), self._switch - came.gain)
            self._trial = False
        self._planner.learn(self._made, self._accepted, ms if usual and self._usual else None)

    def _may_try(self, choice: Choice) -> bool:
        """Tell whether a round that looks no better than a plain step may be made to learn from it."""
        return choice.plan.mode is not Mode.LOOKUP and self._allowance.affords(self._price(choice))

    def _least(self, choice: Choice) -> float:
        """Return the gain above which drafting begins."""
        return self._switch / 2 + _MARGIN * choice.cost

    def _price(self, choice: Choice) -> float:
        return max(self._switch - choice.gain, 0.0)

    def _do(self, plan: Plan) -> None:
        self._plan = plan
        self.name = plan.mode.value

    def _path(self, limit: int) -> Floats:
        """Return (tokens,) the chance that a path from prompt lookup is accepted up to each token; empty without."""
        return self._followed.lookup.path(self._index.guesses(min(limit, MOST_ROWS)))

    def _outlook(self, limit: int, lookup: Floats = _NOTHING) -> Outlook:
        """Return what is known of a draft's chances.

        Args:
            limit: Tokens that may be drafted.
            lookup: What `_path` gave, for these or some more of them; empty leaves prompt lookup out.
        """
        limit, followed = min(limit, MOST_ROWS - 1), self._followed
        chains = followed.chains
        return Outlook(
            depth=len(self._text),
            limit=limit,
            lookup=lookup[:limit],
            beams=followed.values.table() if self._recurrent else None,
            draft_model=tuple(
                (shape.draft_tokens, chains.expected(shape.draft_tokens, shape.runner_ups), shape.nodes)
                for shape in self._shapes
            ),
            late=self._draft_model.late if self._draft_model else 0,
        )

    @property
    def _switch(self) -> float:
        return self._planner.switch_tokens(len(self._text))

    def _look_up(self, length: int) -> list[int]:
        with self._ledger.stage("lookup"):
            return self._index.continuation(length)

    def _draft_while_it_pays(self, root: int, limit: int) -> Draft:
        """Let the draft model draft as planned, but go on only while it is sure enough of what it drafted."""
        model, choice, chains, depth = self._draft_model, self._choice, self._followed.chains, len(self._text)
        assert model is not None
        assert choice is not None
        beside, late = self._beside, model.late
        known: list[float] = []  # chances of the tokens that are drafted; the last one need not be waited for

        def goes_on(margin: float) -> bool:
            known.append(chains.chance_of(margin))
            further = range(len(known), min(DRAFT_TOKENS[-1], limit) + 1)
            nodes = [DraftShape(steps, beside[:steps]).nodes for steps in further]
            accepted = [chains.expected(steps, beside, known) for steps in further]
            return self._planner.goes_on(choice, depth, nodes, accepted)

        self._usual = late <= _LATE
        model.take_shape(DraftShape(DRAFT_TOKENS[-1], beside), goes_on)
        draft = model.propose(root, limit)
        if not (steps := draft.tree.deepest):  # its context is full
            self._usual = self._trial = False
            return draft
        self._drafted = draft.tree.tokens[1 : 1 + steps]  # the chain comes first
        turned_out = (steps, chains.expected(steps, beside, known), len(draft.tree))
        self._made = self._planner.drafted(choice, Outlook(depth, steps, draft_model=(turned_out,), late=late))
        return Draft(draft.tree, rows=self._made.plan.rows)

    @property
    def _beside(self) -> tuple[int, ...]:
        """Runner-ups beside each token of the draft model that the plan asks for."""
        return DraftShape.of_size(self._plan.length - 1, self._plan.nodes).runner_ups

    def _learn_chain(self, tokens: Sequence[int]) -> None:
        """Take what came of a draft model's tokens; one that ends the reply was accepted as any other."""
        assert self._draft_model is not None
        if not (margins := self._draft_model.margins):  # its context is full
            return
        right = [mine == came for mine, came in zip(np.array(self._drafted).tolist(), tokens, strict=False)]
        chain = [*right, False].index(False)
        self._followed.chains.learn(margins[: len(right)], chain, max(self._accepted, chain), self._beside)

    def _beams(self, root: int, limit: int) -> Draft:
        plan, recurrent, depth = self._plan, self._recurrent, len(self._text)
        assert recurrent is not None
        assert self._made is not None
        self._beam_rounds += 1
        shape = BeamShape(plan.width, min(plan.length, 1 + limit))
        if plan.width > 1 and self._beam_rounds % _WIDE_EVERY == 0:
            shape, self._usual = BeamShape(WIDEST, min(LONGEST, 1 + limit)), False
        branch = self._look_up(plan.branch) if plan.branch else []
        pool = recurrent.search(root, shape)
        nodes, drawn = plan.nodes, None
        if branch or not self._costs.measured:  # by what calls are guessed to cost, a draft is not cut
            mx.async_eval(pool.tokens, pool.parents, pool.scores)
        else:
            with self._ledger.stage("wait"):
                self._ledger.wait(pool.tokens, pool.parents, pool.scores)
            drawn = on_host(pool, shape.width)
            accepted = value_by_nodes(drawn, self._followed.nodes.chances(drawn))
            self._made = self._planner.sized(self._made, depth, accepted)
            nodes = self._made.plan.nodes
            self._cut = self._cut + 1 if nodes == 1 else 0
        self._comparison.add(depth, pool, shape.width, offered=True, drawn=drawn)
        return replace(recurrent.offer(pool, nodes, branch), rows=self._made.plan.rows)
