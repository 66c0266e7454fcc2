"""What a model needs of a machine's memory, and whether that is there. Plain arithmetic, no MLX.

The gate before loading (`models.loading`) and the windows use the same functions, so they never disagree.
"""

from dataclasses import dataclass
from enum import Enum, auto

from rdchat.inference.api.requests import Dtype

GATE_TOKENS = 4096
"""A model must fit together with a cache of this many tokens, or its context if that is shorter."""
QUANTIZATION_GROUP = 64
"""Weights that share a scale and a bias, where rdchat quantises."""
QUANTIZED = {Dtype.EIGHT_BIT: 8, Dtype.FOUR_BIT: 4}
"""Bits of a weight."""
_FLOAT_BYTES = {Dtype.FLOAT16: 2, Dtype.BFLOAT16: 2, Dtype.FLOAT32: 4}
_TIGHT_SHARE = 0.9  # of the memory that a model may take: beyond, mlx-lm warns that it can be slow


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model by the headers of its files.

    Attributes:
        parameters: Number of weights, counted before quantisation.
        stored_bytes: Bytes of all tensors in the files.
        quantization_bits: Bits of a quantised weight; None where the weights are floats.
        float_type: What most of the floats are stored as: `float32`, `float16` or `bfloat16`.
        kv_values_per_token: Numbers that the KV cache keeps for each token; an upper bound with sliding windows.
        context_length: Tokens that prompt and reply may have together.
    """

    parameters: int
    stored_bytes: int
    quantization_bits: int | None
    float_type: Dtype
    kv_values_per_token: int
    context_length: int


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """How much memory a model may take now.

    Attributes:
        limit_bytes: More than this is refused, unless the person wants it all the same.
        free_bytes: Of this nothing else has to give way. On macOS it leaves out what the system would give back, so
            less than a model needs is worth a warning, and no more than that.
    """

    limit_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory as the engine's device has it.

    Attributes:
        on_gpu: Whether models are computed on a GPU.
        total_bytes: Of the machine, or of a GPU that has memory of its own.
        room: What a model may take in the place of the one that is loaded, which is freed first.
        held_bytes: What the engine holds: models, KV caches, buffers that it keeps.
    """

    on_gpu: bool
    total_bytes: int
    room: MemoryRoom
    held_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a model needs.

    Attributes:
        weights_bytes: For its weights.
        cache_bytes: For the KV cache of `tokens`.
        tokens: Prompt and reply together.
        precision: What the weights are held in, such as `float16` or `4bit`.
        drafter_bytes: For what drafts.
    """

    weights_bytes: int
    cache_bytes: int
    tokens: int
    precision: str
    drafter_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.drafter_bytes


class Fit(Enum):
    """Whether a model fits; one that is `TIGHT` is loaded with a warning."""

    FITS = auto()
    TIGHT = auto()
    TOO_LARGE = auto()


def effective_dtype(asked: Dtype, on_gpu: bool) -> Dtype:
    """Return what is asked for; on a GPU `auto` stays so, and is what the model is stored in."""
    return Dtype.FLOAT32 if asked is Dtype.AUTO and not on_gpu else asked


def is_kept(own_bits: int | None, dtype: Dtype) -> bool:
    """Tell whether quantised weights stay as they are."""
    return own_bits is not None and (dtype is Dtype.AUTO or own_bits == QUANTIZED.get(dtype))


def float_of(dtype: Dtype, stored: Dtype, on_gpu: bool) -> Dtype:
    """Return the type that a precision computes in; for quantised weights, and for `auto`, `stored` has a say.

    On a CPU quantised weights compute in float32: MLX's float16 kernel for 4-bit weights takes 3.4 s a row there for
    135M parameters, its float32 kernel 0.1 s. On a GPU they do in the 16 bits that the model is stored in: what is
    stored as bfloat16 may be beyond float16, in some families' activations too.
    """
    if dtype in _FLOAT_BYTES:
        return dtype
    if not on_gpu:
        return Dtype.FLOAT32
    return Dtype.BFLOAT16 if dtype in QUANTIZED and stored is Dtype.FLOAT32 else stored


def precision_words(sizes: ModelSizes, dtype: Dtype) -> str:
    """Return the name of the precision that weights are held in, such as `float16` or `4bit`."""
    if is_kept(sizes.quantization_bits, dtype):
        return f"{sizes.quantization_bits}bit"
    return (sizes.float_type if dtype is Dtype.AUTO else dtype).value


def memory_need(sizes: ModelSizes, asked: Dtype, on_gpu: bool, tokens: int = GATE_TOKENS) -> MemoryNeed:
    """Return what a model needs in a precision, with a cache of so many tokens or of its context if that is shorter."""
    dtype = effective_dtype(asked, on_gpu)
    width = _FLOAT_BYTES[float_of(dtype, sizes.float_type, on_gpu)]
    weights = sizes.stored_bytes
    if not is_kept(sizes.quantization_bits, dtype):
        weights = int(sizes.parameters * _bytes_per_weight(dtype, width))
    tokens = min(tokens, sizes.context_length)
    cache = sizes.kv_values_per_token * width * tokens
    return MemoryNeed(weights, cache, tokens, precision_words(sizes, dtype))


def fit_of(need: MemoryNeed, room: MemoryRoom) -> Fit:
    """Tell whether there is room for what a model needs."""
    if need.total_bytes > room.limit_bytes:
        return Fit.TOO_LARGE
    tight = need.total_bytes > min(room.free_bytes, _TIGHT_SHARE * room.limit_bytes)
    return Fit.TIGHT if tight else Fit.FITS


def gigabytes(count: float) -> str:
    """Return bytes of memory in words, in powers of two as memory is sold: `540 MB`, `2.1 GB`, `16 GB`."""
    if count < 0.9995 * 2**30:
        return f"{count / 2**20:.0f} MB"
    size = count / 2**30
    return f"{size:.0f} GB" if abs(size - round(size)) < 0.05 or size >= 99.5 else f"{size:.1f} GB"


def _bytes_per_weight(dtype: Dtype, float_bytes: int) -> float:
    if dtype not in QUANTIZED:
        return float(float_bytes)
    return QUANTIZED[dtype] / 8 + 2 * float_bytes / QUANTIZATION_GROUP  # each group has a scale and a bias
