"""Plain decoding (`PlainSteps`), and the log-probabilities that events carry, of plain steps and of rounds.

Plain decoding takes one token a target call, and queues the next call before it reads the last token. It is the
baseline of every drafting mode and their oracle.

Where a request asks for it, events have the target's log-probabilities, likely tokens, and each round's prefix tree.
They are part of the graph that chooses the tokens, so they cost no synchronisation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import mlx.core as mx

from rdchat.inference.api import LikelyToken, RoundTree, Stage, TokenEvent
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reductions import check_finite, finite_rows, log_denominator, top_k
from rdchat.inference.decoding.reply import Reply, ReplyJob
from rdchat.inference.decoding.sampling import TokenChooser, masked
from rdchat.inference.device import fetch
from rdchat.inference.verification import PackedTree, PrefixTree

# After a quick choice that was not sure, so many tokens are chosen from the whole vocabulary ("slowly"): at first, and
# at most.
_SLOWLY = 4
_LONGEST_SLOWLY = 64


class TreeLogProbs(NamedTuple):
    """The target's log-probabilities along a verified tree, lazy until evaluated.

    Attributes:
        nodes: (nodes,) float32: log-probability of each node's token after its parent; without meaning for the root.
        chosen: (nodes,) float32: log-probability of the token chosen after each node.
    """

    nodes: mx.array
    chosen: mx.array

    @classmethod
    def build(cls, logits: mx.array, tree: PackedTree, chosen: mx.array) -> "TreeLogProbs":
        """Build them, lazily.

        Args:
            logits: (nodes, vocabulary), any floating dtype: what the target returned.
            tree: The verified tree.
            chosen: (nodes,) the tokens chosen.
        """
        of_chosen = token_log_probs(logits, chosen)
        parents = mx.maximum(tree.parents, 0)
        # Logits differ as log-probabilities do, so the denominator is computed once a row.
        offered = logits[parents, tree.tokens]
        taken = logits[parents, chosen[parents]]
        return cls(offered.astype(mx.float32) - taken.astype(mx.float32) + of_chosen[parents], of_chosen)


class LikelyTokens(NamedTuple):
    """The most likely tokens after each of some rows, before temperature and filters; lazy until evaluated.

    Attributes:
        ids: (n, count) uint32: token ids, the most likely first.
        log_probs: (n, count) float32: their log-probabilities.
    """

    ids: mx.array
    log_probs: mx.array

    def listed(self, data_of: Callable[[int], bytes]) -> list[tuple[LikelyToken, ...]]:
        """Return the tokens of each row; `data_of` gives the text of one."""
        ids, log_probs = (each.tolist() for each in fetch(*self))
        return [
            tuple(LikelyToken(token, data_of(token), log_prob) for token, log_prob in zip(*row, strict=True))
            for row in zip(ids, log_probs, strict=True)
        ]


def likely_tokens(logits: mx.array, count: int | None) -> LikelyTokens | None:
    """Return the `count` most likely tokens of each row, lazy; None without any.

    Args:
        logits: (n, vocabulary), any floating dtype: what the target returned.
        count: At most the vocabulary is returned.
    """
    if not count:
        return None
    logits = logits.astype(mx.float32)
    ids, values = top_k(logits, min(count, logits.shape[-1]))
    return LikelyTokens(ids, values - log_denominator(logits))


def token_log_probs(logits: mx.array, tokens: mx.array) -> mx.array:
    """Return the log-probability of one token per row, (n,) float32, before temperature and filters.

    Args:
        logits: (n, vocabulary), any floating dtype: what the target returned.
        tokens: (n,) integers, perhaps lazy.
    """
    logits = logits.astype(mx.float32)
    return (mx.take_along_axis(logits, tokens[:, None], axis=-1) - log_denominator(logits))[:, 0]


def round_tree(
    tree: PrefixTree,
    drafters: Sequence[str],
    log_probs: TreeLogProbs,
    path: Sequence[int],
    correction: int,
    *,
    text_of: Callable[[int], str],
) -> RoundTree:
    """Return a round's tree as events carry it.

    Args:
        tree: The verified tree, on the host.
        drafters: (nodes,) who offered each node.
        log_probs: Evaluated.
        path: Accepted nodes, the root first.
        correction: The token that follows the last of them.
        text_of: Gives the text of one token.
    """
    nodes, chosen = (each.tolist() for each in fetch(*log_probs))
    tokens = tree.tokens.tolist()
    return RoundTree(
        tokens=tuple(tokens),
        parents=tuple(tree.parents.tolist()),
        drafters=tuple(drafters),
        log_probs=(0.0, *nodes[1:]),
        path=tuple(path),
        correction=correction,
        texts=tuple([text_of(token) for token in tokens]),
        correction_text=text_of(correction),
        correction_log_prob=chosen[path[-1]],
    )


@dataclass(frozen=True, slots=True)
class Step:
    """A token of the reply that is being computed.

    Attributes:
        position: Absolute position of the token.
        logits: (1, vocabulary) logits of the call.
        hidden: (1, width) hidden states that drafters read; None if the trunk has no hook.
        seen: (vocabulary,) int32, see `TokenChooser.seen`; None without a penalty.
        token: (1,) token id, from the quick choice if there was one.
        finite: (1,) bool: whether the logits are.
        sure: (1,) bool: whether the quick choice surely equals `TokenChooser.choose`; None where there was none.
        log_prob: (1,) float32: the target's log-probability of the token; None if the request does not ask for it.
        mask: (1, vocabulary) bool: tokens that the matcher allows; None for any text.
        likely: The most likely tokens at this position; None if the request does not ask for it.
        held_up: Whether the token before it was unsure when this step's call was queued. Then the time between the two
            includes another choice, and perhaps another call.
    """

    position: int
    logits: mx.array
    hidden: mx.array | None
    seen: mx.array | None
    token: mx.array
    finite: mx.array
    sure: mx.array | None
    log_prob: mx.array | None
    mask: mx.array | None = None
    likely: LikelyTokens | None = None
    held_up: bool = False


class PlainSteps:
    """Makes a reply's tokens one by one.

    Args:
        job: Model, cache and request.
        reply: Takes the tokens.
        chooser: Chooses them.
    """

    def __init__(self, job: ReplyJob, reply: Reply, chooser: TokenChooser) -> None:
        self._model = job.model
        self._cache = job.cache
        self._ledger: Ledger = job.ledger
        self._reply = reply
        self._chooser = chooser
        self._can_step_back = job.cache.can_step_back
        # Tokens that are still to be chosen from the whole vocabulary.
        self._slowly = 0
        # How many they become after the next choice that is not sure.
        self._next_slowly = _SLOWLY
        self._listed = job.request.top_log_probs
        self._prompt_tokens = len(job.prompt)

    def first(self, logits: mx.array, hidden: mx.array | None, position: int, seen: mx.array | None) -> Step:
        """Begin with the token at `position`, from the logits, (1, vocabulary), and hidden states of the call before.

        Each later step begins here too, from its own call. The token is chosen quickly, except where the cache cannot
        take a wrong token back, and for some tokens after a quick choice that was not sure.
        """
        with self._ledger.stage(Stage.CHOOSE):
            sure = None
            matcher = self._reply.matcher
            mask = None if matcher is None else matcher.mask()
            allowed = masked(logits, mask)
            if self._can_step_back and not self._slowly:
                token, certain = self._chooser.choose_quickly(allowed, position, mx.array([0]), 0, seen)
                sure = None if self._chooser.always_sure else certain
            else:
                token = self._chooser.choose(allowed, [position], seen)
                self._slowly = max(self._slowly - 1, 0)
            log_prob = token_log_probs(logits, token) if self._reply.trace or self._listed is not None else None
            likely = likely_tokens(logits, self._listed)
            finite = finite_rows(logits)
            self._ledger.queue(token, finite, sure, log_prob, *(likely or ()))
        return Step(position, logits, hidden, seen, token, finite, sure, log_prob, mask, likely)

    def begin_after(self) -> Step:
        """Begin with the token after the reply's last one, which is not in the cache yet."""
        reply = self._reply
        token_id = reply.token_ids[-1]
        step = self._call(mx.array([token_id]), self._prompt_tokens + len(reply.token_ids) - 1, reply.seen)
        self._cache.tokens.append(token_id)
        return step

    def advance(self, step: Step, queue: bool) -> tuple[TokenEvent, Step | None]:
        """Wait for a token.

        The next call is queued for the quick choice of the token, which may not be sure. If the full choice is another
        token, the call is taken back and made again.

        Args:
            step: The step of that token.
            queue: Whether to queue the next call first. Not for the first token: on a CPU a read waits for all that is
                queued, so the first token would come one call later.

        Returns:
            The token's event, and the next step where it was queued.
        """
        # A mask depends on the token before.
        queue = queue and (self._reply.matcher is None or self._reply.matcher.is_free(1))
        if queue and step.sure is not None:
            self._cache.remember()
        following = self._call(step.token, step.position, step.seen) if queue else None
        with self._ledger.stage(Stage.PLAIN_WAIT), self._ledger.waiting():
            token_id, sure, log_prob = self._read(step)
        if following is not None:
            if not sure:
                if token_id != int(step.token):
                    self._cache.step_back()
                    following = self._call(mx.array([token_id]), step.position, step.seen)
                following = replace(following, held_up=True)
            self._cache.tokens.append(token_id)
        reply = self._reply
        waits = 1 + self._ledger.take_waits() + self._cache.take_waits()
        # The first token comes with the prefill.
        if reply.token_ids:
            reply.count(target_calls=1, host_syncs=waits)
        reply.seen = step.seen
        likely = step.likely.listed(self._model.token_data)[0] if step.likely else ()
        return reply.add_token(token_id, log_prob, likely), following

    def _call(self, token: mx.array, position: int, seen: mx.array | None) -> Step:
        """Queue the target call for `token`, (1,), perhaps lazy, at `position`; return the step that it begins."""
        with self._ledger.stage(Stage.QUEUE_STEP):
            seen = None if seen is None else self._chooser.with_tokens(seen, token)
            with self._ledger.stage(Stage.FORWARD):
                logits, hidden = self._model.call(token, self._cache)
                self._ledger.synchronize(logits)
            return self.first(logits, hidden, position + 1, seen)

    def _read(self, step: Step) -> tuple[int, bool, float | None]:
        """Wait for a step's token.

        Returns:
            The token, whether the quick choice of it was sure, and its log-probability.
        """
        chosen = step.token
        log_prob = step.log_prob
        mx.eval(chosen, step.finite, step.sure, log_prob)
        check_finite(step.finite, self._model)
        sure = step.sure is None or self._note_choice(bool(step.sure))
        if not sure:
            chosen = self._chooser.choose(masked(step.logits, step.mask), [step.position], step.seen)
            if log_prob is not None:
                log_prob = token_log_probs(step.logits, chosen)
            self._ledger.wait(chosen, log_prob)
        return int(chosen), sure, None if log_prob is None else float(log_prob)

    def _note_choice(self, sure: bool) -> bool:
        """Record whether a quick choice was sure; each unsure one doubles the tokens that are chosen slowly afterwards.

        In a flat distribution the filters keep more candidates than a quick choice looks at. A call queued for a wrong
        token is lost, which costs more than to sort the vocabulary.
        """
        if sure:
            self._next_slowly = _SLOWLY
            return True
        self._slowly = self._next_slowly
        self._next_slowly = min(2 * self._next_slowly, _LONGEST_SLOWLY)
        return False
