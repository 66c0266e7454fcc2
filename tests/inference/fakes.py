"""Small real networks and drafters with random weights, and tokenizers of one character a token, for quick tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models import llama

from rdchat.errors import TemplateRefusedError
from rdchat.inference.api import (
    BeamShape,
    Capability,
    ChatMessage,
    DraftKind,
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    Mode,
    ModelInfo,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.drafting.checkpoints.checkpoint import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import published
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import BlockConfig
from rdchat.inference.drafting.heads.recurrent_head import BoundRecurrentHead, HeadConfig, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel, PrefillPace, TargetEmbeddings
from rdchat.inference.verification.verifier import PackedTree, Verified
from tests.inference.families import CHAINS, FED_AGAIN, HYBRIDS, TREES, WITHOUT_STATES, network_of
from tests.inference.known_capabilities import check_once

ALPHABET = "\0" + "abcdefghijklmnopqrstuvwxyz .\n:"
END = 0
_CONTEXT = 512


class CharacterPrompts(ModelPrompts):
    """Makes token ids in this process, of what the tokenizer's own template gives."""

    thinking = ()  # no switch
    sight = None

    def __init__(self, tokenizer: "CharacterTokenizer") -> None:
        self._folder = Path()  # never started
        self.process = TokenizerProcess()
        self.control: dict[int, str] = {}
        self._tokenizer = tokenizer

    def _encode_turns(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        *_arguments: object,
        **_options: object,
    ) -> list[int]:
        turns = [{"role": message.role.value, "content": message.content} for message in messages]
        try:
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except ValueError as error:
            raise TemplateRefusedError(str(error)) from error
        ids: list[int] = self._tokenizer.encode(text + (unfinished.content if unfinished else ""))
        return ids

    def encode_text(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text)
        return ids


class CharacterTokenizer:
    """Token i is character i of the alphabet; id 0 ends a reply. The template writes `role: text`, a line each."""

    has_chat_template = True
    eos_token_ids = frozenset({END})

    def encode(self, text: str, **_options: object) -> list[int]:
        return [ALPHABET.index(character) for character in text]

    def decode(self, token_ids: list[int], **_options: object) -> str:
        return "".join(ALPHABET[token] for token in token_ids)

    def apply_chat_template(self, turns: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        text = "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
        return text + ("\nassistant: " if add_generation_prompt else "")


class LenientTokenizer(CharacterTokenizer):
    """Takes any text: capitals become small, what the alphabet lacks becomes a space."""

    def encode(self, text: str, **_options: object) -> list[int]:
        return super().encode("".join(c if c in ALPHABET else " " for c in text.lower()))


def chains_only(model: LoadedModel) -> LoadedModel:
    """Return a model as one that verifies chains, but no trees."""
    return replace(model, try_out=lambda: Capability(DraftKind.CHAIN, "test"))


def tiny_llama(
    seed: int = 0, sliding_window: int | None = None, context_length: int = _CONTEXT, tied: bool = True
) -> LoadedModel:
    """Return a llama of two layers; with a sliding window, one layer of the two slides."""
    layers = ["full_attention", "sliding_attention"] if sliding_window else ["full_attention"] * 2
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        vocab_size=len(ALPHABET),
        head_dim=8,
        layer_types=layers,
        sliding_window=sliding_window,
        tie_word_embeddings=tied,
    )
    mx.random.seed(seed)
    with mx.stream(mx.cpu):  # the same weights on every device
        network = llama.Model(args)
        network.update(tree_map(lambda array: array + 0.3 * mx.random.normal(array.shape), network.parameters()))
    network.eval()
    return loaded(network, context_length)


@cache
def shared_llama(seed: int = 0, sliding_window: int | None = None, context_length: int = _CONTEXT) -> LoadedModel:
    """Return a `tiny_llama` that is made once for all tests of a process: none may change it.

    Those that differ in the length of their context alone share a network.
    """
    if context_length == _CONTEXT:
        return tiny_llama(seed, sliding_window)
    model = shared_llama(seed, sliding_window)
    return replace(model, info=replace(model.info, context_length=context_length))


@cache
def shared_family(name: str, dtype: str = "float32") -> LoadedModel:
    """Return a small model of one of `families`, of the alphabet's vocabulary; made once, so none may change it."""
    module, options = (TREES | CHAINS | HYBRIDS | FED_AGAIN | WITHOUT_STATES)[name]
    model = loaded(network_of(module, {**options, "vocab_size": len(ALPHABET)}, dtype))
    return replace(model, info=replace(model.info, dtype=dtype))


# Those whose caches differ.
MODELS: dict[str, Callable[[], LoadedModel]] = {
    "llama": shared_llama,
    "a sliding window": partial(shared_llama, sliding_window=10),
    "recurrent state": partial(shared_family, "qwen3_next"),
    "convolutions": partial(shared_family, "lfm2"),
}


def lenient_llama() -> LoadedModel:
    """Return a small llama that takes any text, as training data and commands have it."""
    return lenient(tiny_llama(0))


def lenient(model: LoadedModel) -> LoadedModel:
    """Return a model of the alphabet as one that takes any text, in prompts too."""
    tokenizer = LenientTokenizer()
    return replace(model, tokenizer=tokenizer, prompts=CharacterPrompts(tokenizer))


def loaded(network: nn.Module, context_length: int = _CONTEXT) -> LoadedModel:
    """Wrap a network of the alphabet's vocabulary."""
    mx.eval(network.parameters())
    info = ModelInfo(
        name="tiny",
        path=Path("tiny"),
        architecture="llama",
        dtype="float32",
        device="CPU",
        context_length=context_length,
        vocabulary_size=len(ALPHABET),
        parameters=0,
        weights_bytes=0,
        load_ms=0.0,
    )
    hooks = ModelHooks(network)
    tokenizer = CharacterTokenizer()
    try_out = cache(partial(check_once, network, hooks, len(ALPHABET)))
    return LoadedModel(network, tokenizer, info, PrefillPace(8, 8, 8), hooks, try_out, CharacterPrompts(tokenizer))


def positions(cache: KVCache) -> int:
    """Return the positions that a KV cache's own layers count, which its tokens must match."""
    return max((getattr(layer, "offset", 0) for layer in cache.layers), default=0)


def ask(prompt: str = "hello there", *, seed: int = 1, **sampling: object) -> GenerationRequest:
    """Return a request of one question, to be decoded plainly."""
    options = {"max_tokens": 24, **sampling}
    params = SamplingParams(**options)  # type: ignore[arg-type]
    return GenerationRequest((ChatMessage(Role.USER, prompt),), params, seed, draft=DraftSettings(Mode.OFF))


def with_beams(request: GenerationRequest, shape: BeamShape, lookup_branch: bool = True) -> GenerationRequest:
    """Return a request that a drafter head is to draft for in a shape."""
    beams: dict[str, Any] = {"beam_width": shape.width, "beam_length": shape.length, "lookup_branch": lookup_branch}
    return replace(request, draft=replace(request.draft, **beams))


class ScriptedDrafter(Drafter):
    """Knows the reply and offers beams that follow it for a while, in an order that makes accepted paths jump about."""

    name = "drafter"

    def __init__(self, reply: list[int], width: int, length: int, seed: int = 0) -> None:
        self._reply = reply
        self._done = 1
        self._width = width
        self._length = length
        self._rng = np.random.default_rng(seed)

    def propose(self, root: int, limit: int) -> Draft:
        assert root == self._reply[self._done - 1]
        length = min(self._length - 1, limit)
        truth = [*self._reply[self._done : self._done + length], *[1] * length][:length]
        beams = []
        for _ in range(self._width):
            right = self._rng.integers(0, length + 1)
            wrong = self._rng.integers(1, len(ALPHABET), size=length)
            beams.append([root, *truth[:right], *wrong[right:]])
        return Draft(PackedTree.pack(tree_of_beams(beams)))

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int], begun: object = None) -> None:
        self._done += len(tokens)


def random_drafter(model: LoadedModel, size: int = len(ALPHABET), **changes: object) -> HeadModel:
    """Return a recurrent drafter of random weights; `changes` are fields of its `HeadConfig`."""
    mx.random.seed(1)
    width = TargetEmbeddings(model.network, size).width
    config = {"hidden_size": width, "draft_vocabulary_size": size - 5, "exit_size": 24, "state_size": 32}
    with mx.stream(mx.cpu):
        head = RecurrentHead(HeadConfig(**(config | changes)))  # type: ignore[arg-type]
    return HeadModel(model, StoredDrafter(head, mx.arange(5, size, dtype=mx.int32)).bind(model))


def tree_of_beams(beams: Sequence[Sequence[int]]) -> PrefixTree:
    """Merge beams of token ids, which all begin with the root's; nodes are numbered beam by beam."""
    # Nodes by parent and token.
    numbers: dict[tuple[int, int], int] = {}
    columns = list[tuple[int, int, int]]()
    for beam in beams:
        parent = -1
        for depth, token in enumerate(beam):
            node = numbers.setdefault((parent, token), len(columns))
            if node == len(columns):
                columns.append((token, parent, depth))
            parent = node
    return PrefixTree(*np.array(columns, np.int32).T)


@dataclass(frozen=True)
class StoredDrafter:
    """A recurrent drafter; its target is None where nobody writes it."""

    head: RecurrentHead
    vocabulary: mx.array
    target: TargetBinding | None = None

    def bind(self, model: LoadedModel) -> BoundRecurrentHead:
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        return BoundRecurrentHead(self.head, self.vocabulary, embeddings)

    def written(self) -> PublishedDrafter:
        assert self.target is not None
        return published(self.head, self.vocabulary, self.target)


@dataclass(frozen=True)
class StoredBlockHead:
    """A block drafter."""

    config: BlockConfig
    weights: Callable[[], Mapping[str, mx.array]]
    vocabulary: mx.array | None = None

    def bind(self, model: LoadedModel, bits: int | None = None) -> BoundBlockHead:
        return BoundBlockHead(self.config, self.weights, self.vocabulary, model, bits)


def job_of(model: LoadedModel, request: GenerationRequest) -> ReplyJob:
    """Return the job of a request, with a cache of its own."""
    return ReplyJob.fresh(model, model.encode_chat(request.messages), request)


def reply_end(events: Iterable[GenerationEvent]) -> ReplyEnd:
    """Return the last event of a reply."""
    *_, end = events
    assert isinstance(end, ReplyEnd)
    return end


def token_events(events: Iterable[GenerationEvent]) -> list[TokenEvent]:
    """Return the events of a reply's tokens."""
    return [event for event in events if isinstance(event, TokenEvent)]
