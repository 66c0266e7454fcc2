"""The target: a loaded, unmodified mlx-lm model with all that decoding needs of it (`LoadedModel`).

Beside it are the pace of reading a prompt (`PrefillPace`), the target's tables of embeddings and output rows, which
drafter heads share (`TargetEmbeddings`), and the protocol of a model that sees (`ImageInput`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

import rdchat.inference.cpu_kernels  # noqa: F401  the model's attention on a CPU
from rdchat.errors import ModelError
from rdchat.inference.api import Capability, ChatMessage, GenerationRequest, ImageSpan, ModelInfo, Stage
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache

# As in mlx-lm; larger chunks need more memory and gain nothing.
MAX_TOKENS = 2048
# A chunk is the tokens of a prompt that are fed in one call. After one that took longer, the next one is shorter.
_SLOW_S = 0.4
# Target time of the shorter chunk, if time grows with the tokens.
_TARGET_S = 0.3
# After a chunk that took no longer, the next one has twice its tokens.
_QUICK_S = 0.2
# The times above are halved when the system stops a chunk, at most to this share.
_MIN_SHARE = 1 / 8
# Chunks that were not stopped, after which chunks may take twice the time again.
_RECOVERS = 64

_EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)
_OUTPUTS = (nn.Linear, nn.QuantizedLinear)

# What tokenizers decode a part of a character to.
_INCOMPLETE = "\ufffd"

type Feed = Callable[[KVCache, int, int], None]
"""Feeds the tokens of a prompt from one index to another, with the rows of images among them."""


class PrefillPace:
    """Chooses the next chunk's size by the time of the last one.

    Cancelling is possible between chunks and must take half a second at most. Long chunks keep a GPU busy, above all
    with a mixture of experts, where each expert sees only a few tokens of a chunk. So a chunk is as long as that
    allows. Its size is the first one times a power of two, so that the same prompt is mostly split in the same way.

    Args:
        first: Tokens of the first chunk.
        shortest: The shortest chunk, which may take longer than half a second.
        longest: The longest one.

    Attributes:
        chunk: Tokens of the next chunk.
    """

    def __init__(self, first: int, shortest: int = 8, longest: int = MAX_TOKENS) -> None:
        self.chunk = first
        self._shortest = shortest
        self._longest = longest
        # Share of the times above; it is halved when the system stops a chunk.
        self._share = 1.0
        # Chunks since it stopped one.
        self._unstopped = 0

    def record_time(self, tokens: int, seconds: float) -> None:
        """Record the time of a chunk, and choose the next one's size.

        A slow one halves it until its time would be right, a quick one doubles it. A chunk shorter than `chunk`, as at
        a prompt's end, can only shorten the next.
        """
        self._unstopped += 1
        if self._unstopped % _RECOVERS == 0:
            self._share = min(2 * self._share, 1.0)
        seconds /= self._share
        if seconds > _SLOW_S:
            fitting = tokens * _TARGET_S / seconds
            while self.chunk > max(fitting, self._shortest):
                self.chunk //= 2
            self.chunk = max(self.chunk, self._shortest)
        elif tokens == self.chunk and seconds <= _QUICK_S:
            self.chunk = min(2 * self.chunk, self._longest)

    def shorten(self) -> None:
        """Halve the next chunk, and the time that chunks may take: the system stopped one, mostly for its length."""
        self.chunk = max(self.chunk // 2, self._shortest)
        self._share = max(self._share / 2, _MIN_SHARE)
        self._unstopped = 0


class TargetEmbeddings:
    """The tables of an unmodified mlx-lm model, found by their type and number of rows: embeddings and output rows.

    Args:
        network: The target.
        vocabulary_size: Columns of its logits.

    Attributes:
        width: Width of a token's embedding (`hidden_size`).
        dtype: Type of a token's embedding.

    Raises:
        ModelError: If no embedding table of that many rows is found.
    """

    def __init__(self, network: nn.Module, vocabulary_size: int) -> None:
        named = [(name, module) for name, module in network.named_modules() if _rows(module) == vocabulary_size]
        # The outermost come first; Gemma's `embed_tokens_per_layer` has as many rows as `embed_tokens`.
        modules = [module for _, module in sorted(named, key=lambda pair: (pair[0].count("."), len(pair[0])))]
        tables = [module for module in modules if isinstance(module, _EMBEDDINGS)]
        heads = [module for module in modules if isinstance(module, _OUTPUTS)]
        if not tables:
            raise ModelError("The model stores its token embeddings in a form that drafters cannot use.")
        self._table: Any = tables[0]
        self._output: Any = heads[0] if heads else self._table

        self.dtype = _float_type(self._table, network)
        self.width = int(self.embed(mx.array([0])).shape[-1])

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens, (...) -> (..., hidden_size), as stored, without a family's scaling."""
        embeddings: mx.array = self._table(tokens)
        return embeddings.astype(self.dtype)

    def output(self) -> Callable[[mx.array], mx.array]:
        """Return the function from features, (..., hidden_size), to all tokens' logits; it shares the target's rows."""
        function: Callable[[mx.array], mx.array] = getattr(self._output, "as_linear", self._output)
        return function

    def output_rows(self, token_ids: mx.array) -> mx.array:
        """Return the output rows of tokens, (n,) -> (n, hidden_size), in the precision of the embeddings."""
        module = self._output
        if not isinstance(module, nn.QuantizedEmbedding | nn.QuantizedLinear):
            rows: mx.array = module.weight[token_ids]
            return rows
        return mx.dequantize(*_packed_rows(module, token_ids), **_packing(module)).astype(self.dtype)

    def output_for(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """Return the function from features, (..., hidden_size), to the logits of some tokens, (..., n).

        It holds a copy of their rows, quantised where the target's are.
        """
        module = self._output
        bias = module.bias[token_ids] if "bias" in module else None
        if not isinstance(module, nn.QuantizedEmbedding | nn.QuantizedLinear):
            rows = mx.contiguous(module.weight[token_ids])
            mx.eval(rows, bias)
            return lambda features: _plus(features @ rows.T, bias)
        packed = _packed_rows(module, token_ids)
        packing = _packing(module)
        mx.eval(packed, bias)
        return lambda features: _plus(mx.quantized_matmul(features, *packed, transpose=True, **packing), bias)


def embedding_scale(architecture: str, width: int) -> float:
    """Return the factor that transformers applies to a family's embeddings inside the table.

    Drafters that use the target's table were trained with scaled rows, while mlx-lm's models scale outside of the
    table. Families such as Granite or the first two Gemmas scale outside of it in transformers too, so drafters do not
    see it.

    Args:
        architecture: mlx-lm's model type.
        width: Of an embedding.
    """
    return float(width**0.5) if architecture.startswith(("gemma3", "gemma4")) else 1.0


def _packed_rows(module: Any, token_ids: mx.array) -> tuple[mx.array, mx.array, mx.array | None]:
    """Return the packed rows of tokens, (n, packed width), with their scales and, in affine mode only, their biases."""
    biases = module.get("biases")
    return module.weight[token_ids], module.scales[token_ids], None if biases is None else biases[token_ids]


def _packing(module: Any) -> dict[str, Any]:
    return {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}


def _float_type(table: Any, network: nn.Module) -> mx.Dtype:
    """Return the type in which a table's rows are used: their own or, if they are not floats, the network's.

    The scales of mxfp4, mxfp8 and nvfp4 have 8 bits, and MLX unpacks them as bfloat16 whatever the network computes in.
    """
    stored = [table.scales] if isinstance(table, nn.QuantizedEmbedding) else [table.weight]
    others = [array for _, array in tree_flatten(network.parameters())]
    return next((array.dtype for array in stored + others if mx.issubdtype(array.dtype, mx.floating)), mx.bfloat16)


def _plus(logits: mx.array, bias: mx.array | None) -> mx.array:
    return logits if bias is None else logits + bias


def _rows(module: nn.Module) -> int:
    return int(module.weight.shape[0]) if isinstance(module, (*_EMBEDDINGS, *_OUTPUTS)) else 0


type StageTimer = Callable[[Stage], AbstractContextManager[None]]
"""Returns a context that times a block."""


def untimed(_stage: Stage) -> AbstractContextManager[None]:
    """Time nothing: a `StageTimer`."""
    return nullcontext()


class ImageInput(Protocol):
    """Puts the images of a request into a model's prompt: their ids, and the rows that its network gets for them."""

    @property
    def token(self) -> int:
        """The id that stands for the pixels of an image, for a model that does not see them."""

    def insert_images(self, ids: list[int], request: GenerationRequest) -> tuple[list[int], list[ImageSpan]]:
        """Return the ids of a request's prompt with those of its images, and where they stand."""

    def see(
        self,
        ids: list[int],
        spans: Sequence[ImageSpan],
        request: GenerationRequest,
        waiting: Callable[[], None],
        *,
        start: int,
        stage: StageTimer = untimed,
    ) -> Iterator[tuple[int, Feed | None]]:
        """Compute the rows of a prompt's images, unless they are kept; yield how many are left.

        It yields `(left, None)` before each image, and `(0, feed)` after the last one. `feed` feeds the prompt.

        Args:
            ids: The prompt, as `insert_images` returned it.
            spans: Where the images stand.
            request: Has the images.
            waiting: Called now and then during the work; an exception that it raises ends the work.
            start: Index of the first token that is fed; images before it are not needed.
            stage: Times the work on each image.

        Raises:
            ImageRefusedError: If an image cannot be read.
            ModelError: If the model's vision part is damaged.
        """

    def drop_rows(self) -> None:
        """Forget the rows that are kept in memory."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        network: Module of mlx-lm; called with (1, n) token ids and a cache, it returns (1, n, vocabulary) logits.
        tokenizer: Tokenizer wrapper of mlx-lm; prompts come from `prompts` instead.
        info: Name, sizes, precision and device.
        pace: Chooses the prompt tokens of one call; cancelling is possible between calls.
        hooks: Give packed positions and record hidden states.
        try_out: Returns what the model can verify in one call; runs `check_capability` the first time.
        prompts: Makes token ids of conversations.
        image_input: What it sees with; None if it does not see.
        suppressed: Tokens that its replies never have.
        stop: Strings that end its replies, as an end token does.
        is_tried: Returns whether `capability` is known, also from an earlier start, and takes no calls of the model.
    """

    network: nn.Module
    tokenizer: Any
    info: ModelInfo
    pace: PrefillPace
    hooks: ModelHooks
    try_out: Callable[[], Capability]
    prompts: ModelPrompts
    image_input: ImageInput | None = None
    suppressed: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    is_tried: Callable[[], bool] = lambda: True
    # What `token_data` returned for tokens inside a word.
    _data: dict[int, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def capability(self) -> Capability:
        """What the model can verify in one call; tried at first use, which takes time: see `check_capability`."""
        return self.try_out()

    @property
    def end_tokens(self) -> frozenset[int]:
        """Ids of tokens that end a reply."""
        return frozenset(self.tokenizer.eos_token_ids)

    def call(self, tokens: mx.array, cache: KVCache) -> tuple[mx.array, mx.array | None]:
        """Feed tokens, (n,), perhaps lazy, in one call of the network.

        Returns:
            The logits after each, (n, vocabulary), lazy; and the hidden states that the hooks record, (n, width), lazy,
            or None without any.
        """
        logits: mx.array = self.network(tokens[None], cache=cache.layers)
        hidden = self.hooks.hidden
        return logits[0], None if hidden is None else hidden[0]

    def decode(self, token_ids: list[int], /) -> str:
        """Return the text of tokens, special ones included; tokens of images have none."""
        if token_ids and min(token_ids) < 0:
            token_ids = [token for token in token_ids if token >= 0]
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def token_text(self, token_id: int) -> str:
        """Return the text of a token inside a text, with its leading space."""
        return self.token_data(token_id).decode(errors="replace")

    def token_data(self, token_id: int, before: int | None = None) -> bytes:
        """Return a token's text in UTF-8, perhaps a part of a character.

        Args:
            token_id: The token.
            before: The token before it, on which the blanks of some decoders depend; None inside a word. It does not
                count where the two together have a part of a character.
        """
        if before is not None and (alone := self.decode([before])):
            both = self.decode([before, token_id])
            if _INCOMPLETE not in both and both.startswith(alone):
                return both[len(alone) :].encode()
        if token_id not in self._data:
            word = self.tokenizer.encode("a", add_special_tokens=False)
            text = self.decode([*word, token_id])[len(self.decode(word)) :]
            self._data[token_id] = _bytes_of(self.tokenizer, token_id, text) if _INCOMPLETE in text else text.encode()
        return self._data[token_id]

    def check_rows(self, ids: Sequence[int]) -> None:
        """Check that the network has an embedding of each token of a prompt, which MLX would not check.

        Args:
            ids: At least one; none stands for a part of an image.

        Raises:
            ModelError: If it lacks one.
        """
        for token in (min(ids), max(ids)):
            if not 0 <= token < self.info.vocabulary_size:
                raise ModelError(
                    f"The prompt has a token {token:,}, for which {self.info.name} has no embedding.",
                    "Its tokenizer belongs to another model. Download the model again, or choose another one.",
                )

    def encode_chat(self, messages: tuple[ChatMessage, ...]) -> list[int]:
        """Return the token ids of a conversation; see `encode_request`."""
        return self.encode_request(GenerationRequest(messages))[0]

    def encode_request(
        self, request: GenerationRequest, waiting: Callable[[], None] = lambda: None
    ) -> tuple[list[int], list[ImageSpan]]:
        """Return the token ids of a request's prompt, and where its images stand.

        A message that is continued follows the template's opening of a reply unchanged, since templates drop or rewrite
        thoughts in a message.

        Args:
            request: Its messages or its text, its tools and its thinking.
            waiting: Called now and then during the work; an exception that it raises ends the work.

        Raises:
            InvalidSettingError: If the template has no such switch for thinking.
            ModelError: If the template refuses the conversation, or makes no text of it.
            PromptTooLongError: If the conversation is far longer than the context.
        """
        ids = self.prompts.encode_request(request, self.info.context_length, waiting)
        if not ids:
            raise ModelError(
                "The model's chat template produced no text for this chat.", "Choose an instruction-tuned model."
            )
        self.check_rows(ids)
        return (ids, []) if self.image_input is None else self.image_input.insert_images(ids, request)


def _bytes_of(tokenizer: Any, token_id: int, text: str) -> bytes:
    """Return the bytes of a token that has a part of a character: of a byte-level tokenizer, or a byte such as <0xE2>.

    A byte-level tokenizer spells each byte as one character; a token with another character is not its own, and `text`
    counts.

    Args:
        tokenizer: One of transformers'.
        token_id: The token.
        text: What it decodes to, for a token of another kind.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode  # noqa: PLC0415  is loaded by now

    spelled = str(tokenizer.convert_ids_to_tokens(token_id))
    if (byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", spelled)) is not None:
        return bytes.fromhex(byte[1])
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    if not all(each in byte_of for each in spelled):
        return text.encode()
    if tokenizer.encode(spelled, add_special_tokens=False) == [token_id]:
        # A word that was added to the vocabulary.
        return spelled.encode()
    return bytes(byte_of[each] for each in spelled)
