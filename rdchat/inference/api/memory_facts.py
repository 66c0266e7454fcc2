"""What memory a model needs, and whether this machine has it. Plain arithmetic, no MLX.

The gate before loading (`models.loading`) and the windows use the same functions, so they never disagree.
"""

from dataclasses import dataclass
from enum import Enum, auto

from rdchat.files.sizes import size_words
from rdchat.inference.api.requests import Dtype

GATE_TOKENS = 4096
"""A model must fit together with a cache of this many tokens, or its context if that is shorter."""
QUANTIZATION_GROUP = 64
"""Weights that share a scale and a bias when rdchat quantises."""
QUANTIZED = {Dtype.EIGHT_BIT: 8, Dtype.FOUR_BIT: 4}
"""Bits of a weight."""
_FLOAT_BYTES = {Dtype.FLOAT16: 2, Dtype.BFLOAT16: 2, Dtype.FLOAT32: 4}
_TIGHT_SHARE = 0.9  # of the memory that a model may take: above it mlx-lm warns that the model can be slow


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model by the headers of its files."""

    parameters: int  # number of weights, counted before quantisation
    stored_bytes: int  # bytes of all tensors in the files
    quantization_bits: int | None  # bits of a quantised weight; None where the weights are floats
    float_type: Dtype  # what most of the floats are stored as: `float32`, `float16` or `bfloat16`
    kv_values_per_token: int  # numbers that the KV cache keeps for each token; an upper bound with sliding windows
    context_length: int  # tokens that prompt and reply may have together


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """How much memory a model may take now."""

    limit_bytes: int  # a larger model is refused, unless the person wants it all the same
    # Memory that is free without making anything else give way. On macOS it leaves out what the system would give back,
    # so a model that needs more gets a warning only.
    free_bytes: int


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory as the engine's device has it."""

    on_gpu: bool  # whether models are computed on a GPU
    total_bytes: int  # of the machine, or of a GPU that has memory of its own
    room: MemoryRoom  # what a model may take in place of the loaded one, which is freed first
    held_bytes: int  # what the engine holds: models, KV caches, and buffers that MLX keeps
    most_bytes: int = 0  # what a model may take when no other program needs memory; 0 where only `room` is known

    @property
    def whole_room(self) -> MemoryRoom:
        """The room by the whole memory: what is used at the moment makes a model tight, not too large."""
        return MemoryRoom(max(self.most_bytes, self.room.limit_bytes), self.room.free_bytes)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What a model needs."""

    weights_bytes: int  # for its weights
    cache_bytes: int  # for the KV cache of `tokens`
    tokens: int  # prompt and reply together
    precision: str  # what the weights are held in, such as `float16` or `4bit`
    drafter_bytes: int = 0  # for what drafts

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.drafter_bytes


class Fit(Enum):
    """Whether a model fits; one that is `TIGHT` is loaded with a warning."""

    FITS = auto()
    TIGHT = auto()
    TOO_LARGE = auto()


def effective_dtype(asked: Dtype, on_gpu: bool) -> Dtype:
    """Return the precision asked for; `auto` means float32 on a CPU, and stays `auto` on a GPU: as stored."""
    return Dtype.FLOAT32 if asked is Dtype.AUTO and not on_gpu else asked


def is_kept(own_bits: int | None, dtype: Dtype) -> bool:
    """Tell whether already quantised weights stay as they are."""
    return own_bits is not None and (dtype is Dtype.AUTO or own_bits == QUANTIZED.get(dtype))


def float_of(dtype: Dtype, stored: Dtype, on_gpu: bool) -> Dtype:
    """Return the type that a precision computes in; quantised weights and `auto` depend on `stored`.

    On a CPU quantised weights compute in float32: MLX's float16 kernel for 4-bit weights takes 3.4 s a row there for
    135M parameters, its float32 kernel 0.1 s. On a GPU they compute in the 16-bit type that the model is stored in:
    values stored as bfloat16 may be beyond float16, and so may activations of some families.
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
    """Return a model's need in a precision, with a cache of `tokens`, or of its context if that is shorter."""
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


gigabytes = size_words  # of memory


def _bytes_per_weight(dtype: Dtype, float_bytes: int) -> float:
    if dtype not in QUANTIZED:
        return float(float_bytes)
    return QUANTIZED[dtype] / 8 + 2 * float_bytes / QUANTIZATION_GROUP  # each group has a scale and a bias
