"""The measurements of `rdchat report`: call costs, plain decoding against mlx-lm, diverging tokens, primitives."""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import mlx.core as mx

from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS, Difference
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.model_facts import DraftKind
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.auto.cost_model import PLAIN_STEP
from rdchat.inference.auto.measuring import Measured, Measurement, OtherPrograms, measure_calls
from rdchat.inference.benchmark.differences import divergences
from rdchat.inference.benchmark.recording import Recording, record, record_mlx_lm
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import read_prompt
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.session import ChatSession
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import PackedTree, Verifier

DEPTHS = 128, 1024, 4096, 16384  # tokens in the cache at which calls are measured
ROWS = (*range(1, 17), 32)
_SENTENCE = "A keeper of a lighthouse counts the ships that pass, and writes their names into a book. "
_TOKENS, _TRIALS = 32, 3
_CALL_ROWS = 5
_VIEWS = {  # these compute nothing, they only describe where data is
    "AsStrided",
    "Broadcast",
    "BroadcastAxes",
    "Depends",
    "ExpandDims",
    "Flatten",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "StopGradient",
    "Transpose",
    "Unflatten",
    "View",
}


def cost_by_rows(model: LoadedModel, depth: int, out_of_time: Callable[[], bool]) -> dict[str, Any]:
    """Measure calls of 1 to 16 and 32 rows, each alone, and plain steps queued one after another.

    Args:
        model: The target.
        depth: Tokens in the cache, within the model's context.
        out_of_time: Called between calls.

    Returns:
        Milliseconds by rows and of a plain step, and whether the machine was undisturbed by other programs; empty if
        there was not enough time.
    """
    measured = _finish(measure_calls(model, [depth], ROWS, OtherPrograms()), out_of_time)
    costs = measured.costs
    if not costs:
        return {}
    plain = costs[PLAIN_STEP, depth]
    ms = {rows: costs[rows, depth] for rows in ROWS if (rows, depth) in costs}
    return {
        "plain_step_ms": plain,
        "call_ms": ms,
        "in_plain_steps": {rows: cost / plain for rows, cost in ms.items()},
        "quiet": measured.quiet,
    }


def _finish(measurement: Measurement, out_of_time: Callable[[], bool]) -> Measured:
    """Run a measurement to its end; return no costs if the time runs out first."""
    while not out_of_time():
        try:
            next(measurement)
        except StopIteration as end:
            found: Measured = end.value
            return found
    measurement.close()
    return Measured({}, quiet=True)


def compare_plain(session: ChatSession, depth: int, out_of_time: Callable[[], bool]) -> dict[str, Any]:
    """Decode a reply to a prompt of about `depth` tokens, in turns with mlx-lm.

    Args:
        session: Its caches are emptied.
        depth: Tokens of the prompt, roughly.
        out_of_time: Called between replies and between chunks of the prompt.

    Returns:
        Tokens of the prompt, pairs of replies, medians of tokens per second and of their ratio, and MLX's peak memory
        in bytes; empty if not one pair was finished.
    """
    request, pairs = request_of_depth(session, depth), list[dict[str, Recording]]()
    peaks = {"rdchat": 0, "mlx-lm": 0}
    for trial in range(_TRIALS):
        pair: dict[str, Recording] = {}
        for name in sorted(peaks, reverse=bool(trial % 2)):
            session.forget()  # only one cache is in memory at a time
            mx.clear_cache()
            mx.reset_peak_memory()
            ours = name == "rdchat"
            found = (
                record(session, request, out_of_time) if ours else record_mlx_lm(session.model, request, out_of_time)
            )
            if found is None:
                return _figures(pairs, peaks)
            pair[name], peaks[name] = found, max(peaks[name], mx.get_peak_memory())
        pairs.append(pair)
    return _figures(pairs, peaks)


def request_of_depth(session: ChatSession, depth: int, tokens: int = _TOKENS) -> GenerationRequest:
    """Return a request for a plain greedy reply of so many tokens to a prompt of about `depth` tokens."""

    def request(sentences: int) -> GenerationRequest:
        message = ChatMessage(Role.USER, _SENTENCE * sentences)
        return GenerationRequest((message,), sampling, draft=DraftSettings(mode=Mode.OFF))

    sampling = SamplingParams(temperature=0, max_tokens=tokens)
    few, many = (len(session.model.encode_chat(request(n).messages, continue_last=False)) for n in (1, 11))
    return request(max(1, 1 + (depth - few) * 10 // (many - few)))


def _figures(pairs: list[dict[str, Recording]], peaks: dict[str, int]) -> dict[str, Any]:
    speeds = [(pair["rdchat"].statistics.decode_tps, pair["mlx-lm"].statistics.decode_tps) for pair in pairs]
    known = [(mine, other) for mine, other in speeds if mine and other]
    if not known:
        return {}
    return {
        "prompt_tokens": pairs[0]["rdchat"].statistics.prompt_tokens,
        "pairs": len(known),
        "decode_tps": median(mine for mine, _ in known),
        "mlx_lm_decode_tps": median(other for _, other in known),
        "ratio_to_mlx_lm": median(mine / other for mine, other in known),
        "peak_memory_bytes": peaks,
    }


@dataclass(frozen=True, slots=True)
class Divergences:
    """How often drafted decoding chooses another token than plain decoding, at one precision and temperature.

    Drafts are verified with several rows a call, plain decoding feeds one row a call, and their kernels round
    differently. Where two tokens nearly tie, each may choose another one.
    """

    dtype: str  # precision of the weights
    temperature: float  # 0 is greedy
    mode: Mode  # how the replies were drafted
    tokens: int  # tokens compared
    # For each divergence, the difference of the two tokens' final scores under plain decoding, in nats; if a filter
    # drops the reply's token there, its distance from the filter's border.
    gaps: tuple[float, ...]
    # Effect of rounding on the scores at each of these places, in nats; see `Difference`.
    rounding: tuple[float, ...]

    @property
    def per_thousand(self) -> float:
        """Divergences per 1,000 tokens."""
        return 1000 * len(self.gaps) / max(self.tokens, 1)


def count_divergences(session: ChatSession, mode: Mode, temperature: float, tokens: int) -> Iterator[Divergences]:
    """Decode everyday replies with drafts and compare them; yield the count so far after each.

    Plain decoding follows the tokens of each reply; each place where it would have chosen another token counts.
    Sampling is the app's, with its default filters.

    Args:
        session: Its caches are emptied.
        mode: How to draft; replies drafted in another way do not count.
        temperature: 0 is greedy.
        tokens: The most tokens of a reply.
    """
    model, compared = session.model, 0
    found: list[Difference] = []
    for number, prompt in enumerate(EVERYDAY_PROMPTS):
        message = ChatMessage(Role.USER, prompt.text)
        sampling = SamplingParams(temperature, max_tokens=tokens)
        request = GenerationRequest((message,), sampling, number, draft=DraftSettings(mode))
        session.forget()
        *_, end = session.generate(request)
        assert isinstance(end, ReplyEnd)
        if end.mode is mode:
            found += divergences(model, request, end.token_ids)
            compared += len(end.token_ids) - 1
        gaps, rounding = (tuple(getattr(one, name) or 0.0 for one in found) for name in ("gap", "rounding"))
        yield Divergences(model.info.dtype, temperature, mode, compared, gaps, rounding)


def primitives(*arrays: mx.array | None) -> Counter[str]:
    """Return the primitives that evaluating lazy arrays would run, by name, without those that only make views."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *(array for array in arrays if array is not None))
    names = re.findall(r'label ="(\w+)", shape=rectangle', dot.getvalue())
    return Counter(name for name in names if name not in _VIEWS)


def graph_sizes(session: ChatSession) -> dict[str, Any]:
    """Count the primitives of a plain step, a target call of five rows, and a draft of its drafter, with the choice."""
    model = session.model
    cache = KVCache(model.network)
    mx.eval(model.network(mx.array([[1, 2, 3]]), cache=cache.layers))
    cache.tokens += [1, 2, 3]
    chooser = TokenChooser(SamplingParams(), 0, model.info.vocabulary_size)
    counts: dict[str, Counter[str]] = {}
    if model.capability.kind is not DraftKind.NONE:
        verifier = Verifier(model, cache)
        tree = PackedTree.chain(mx.arange(1, 1 + _CALL_ROWS))
        verified = verifier.verify(tree)
        counts[f"a call of {_CALL_ROWS} rows"] = primitives(
            *chooser.choose_quickly(verified.logits, 4, tree.depths, tree.deepest)
        )
        mx.eval(verified.logits)
        verifier.rollback()
    logits = model.network(mx.array([[1]]), cache=cache.layers)[:, -1]
    counts["a plain step"] = primitives(*chooser.choose_quickly(logits, 3, mx.array([0]), 0))
    found = {name: _as_json(count) for name, count in counts.items()}
    if (drafted := draft_size(session, DraftSettings(Mode.DRAFTER))) is not None:
        found["a draft"] = drafted
    return found


def _as_json(count: Counter[str]) -> dict[str, Any]:
    return {"primitives": count.total(), "by_name": dict(count.most_common())}


def draft_size(session: ChatSession, settings: DraftSettings) -> dict[str, Any] | None:
    """Count the primitives of a head's draft of the usual shape; None without the drafter in the settings."""
    request = GenerationRequest((ChatMessage(Role.USER, "-"),), draft=settings)
    if session.drafters.try_load(request.draft) is not None:
        return None
    _, drafter = session.drafters.prepare(ReplyJob.fresh(session.model, [1, 2, 3], request)) or (None, None)
    if not isinstance(drafter, HeadDrafter):
        return None
    mx.eval(read_prompt(session.model, KVCache(session.model.network), [1, 2, 3]), session.model.hooks.hidden)
    for _ in drafter.prefill(lambda: False, Ledger()):
        pass
    return _as_json(primitives(*drafter.draft(1, request.draft.shape, _CALL_ROWS).tree.arrays))
