"""A model or drafter on this machine: its address, all that is known without loading it, and the memory it needs.

Plain data and arithmetic, no MLX. The check before loading (`inference.loading`) and the windows use the same
functions, so they never disagree.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from pathlib import Path

from rdchat.inference.api.requests import Dtype

GATE_TOKENS = 4096
"""A model must fit together with a cache of this many tokens, or its context if that is shorter."""
QUANTIZATION_GROUP = 64
"""Weights that share a scale and a bias when rdchat quantises."""
QUANTIZED = {Dtype.EIGHT_BIT: 8, Dtype.FOUR_BIT: 4}
"""Bits of a weight."""
_FLOAT_BYTES = {Dtype.FLOAT16: 2, Dtype.BFLOAT16: 2, Dtype.FLOAT32: 4}
# Above this share of the memory that a model may take, mlx-lm warns that the model can be slow.
_TIGHT_SHARE = 0.9
_REMOTE = "remote:"
_RANKS = "ranks:"

# The model type of Apple's recurrent drafters.
APPLE_MODEL_TYPE = "recurrent_drafting_drafter"

# Settings that only drafters' configurations have. Whether a drafter can be read is decided by its tensors.
_TELLING = {
    "dflash_config",
    "backbone_hidden_size",
    "draft_vocab_size",
    "eagle_config",
    "markov_head_type",
    "markov_rank",
    "rdchat",
    "speculators_config",
    "speculators_model_type",
    "target_layer_ids",
}

NO_VISION = "This copy has no vision."


class Origin(StrEnum):
    """Where a model or a drafter on this machine comes from, for people.

    Attributes:
        OWN: rdchat converted it.
        HUB: The hub's cache.
        LM_STUDIO: LM Studio's folders.
        CHOSEN: The person's own models folder.
        TRAINED: A drafter that was trained or put together on this machine.
        SHIPPED: A drafter that comes with rdchat.
        NEAR_MODEL: A drafter in or beside the model's folder.
        OWN_LAYERS: The model's own MTP layers.
    """

    OWN = "rdchat"
    HUB = "Hugging Face"
    LM_STUDIO = "LM Studio"
    CHOSEN = "Your folder"
    TRAINED = "Your own"
    SHIPPED = "Comes with rdchat"
    NEAR_MODEL = "Beside the model"
    OWN_LAYERS = "In the model"


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """A model by the headers of its files.

    Attributes:
        parameters: Number of weights, counted before quantisation.
        stored_bytes: Bytes of all tensors in the files.
        quantization_bits: Bits of a quantised weight; None if the weights are floats.
        float_type: Type of most of the floats: `float32`, `float16` or `bfloat16`.
        kv_values_per_token: Numbers that the KV cache holds for each token; an upper bound with sliding windows.
        context_length: Maximum tokens of prompt and reply together.
        tower_parameters: Those of `parameters` that see; they are never quantised by rdchat.
        image_bytes: Memory of the rows of images that are kept.
    """

    parameters: int
    stored_bytes: int
    quantization_bits: int | None
    float_type: Dtype
    kv_values_per_token: int
    context_length: int
    tower_parameters: int = 0
    image_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """How much memory a model may take now.

    Attributes:
        limit_bytes: A larger model is refused, unless the person chooses to load it anyway.
        free_bytes: Memory that is free without making anything else give way. On macOS it leaves out what the system
            would give back, so a model that needs more gets a warning only.
    """

    limit_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """The machine's memory as the engine's device has it.

    Attributes:
        on_gpu: Whether models are computed on a GPU.
        total_bytes: Memory of the machine, or of a GPU that has its own.
        room: Room for another model than the loaded one, which is freed first.
        held_bytes: Memory of the engine: models, KV caches, and buffers that MLX keeps.
        max_bytes: Room for a model when no other program needs memory; 0 if only `room` is known.
        bytes_per_second: Measured speed at which weights are read; 0 where it is not known.
    """

    on_gpu: bool
    total_bytes: int
    room: MemoryRoom
    held_bytes: int
    max_bytes: int = 0
    bytes_per_second: float = 0.0

    @property
    def total_room(self) -> MemoryRoom:
        """The room by the total memory: what is used at the moment makes a model tight, not too large."""
        return MemoryRoom(self.max_bytes or self.room.limit_bytes, self.room.free_bytes)


class Fit(Enum):
    """Whether a model fits; one that is `TIGHT` is loaded with a warning."""

    FITS = auto()
    TIGHT = auto()
    TOO_LARGE = auto()


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory that a model needs.

    Attributes:
        weights_bytes: Memory of the weights.
        cache_bytes: Memory of the KV cache for `tokens`.
        tokens: Tokens of prompt and reply together.
        precision: Precision of the weights, such as `float16` or `4bit`.
        drafter_bytes: Memory of the drafter.
        image_bytes: Memory of images.
    """

    weights_bytes: int
    cache_bytes: int
    tokens: int
    precision: str
    drafter_bytes: int = 0
    image_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.drafter_bytes + self.image_bytes

    @classmethod
    def for_sizes(cls, sizes: ModelSizes, requested: Dtype, on_gpu: bool, tokens: int = GATE_TOKENS) -> "MemoryNeed":
        """Return a model's need in a precision, with a cache of `tokens`, or of its context if that is shorter.

        Weights that stay quantised need what they take in the files. Others need the bytes of the precision for each
        weight; those that see, and the cache, those of the type that the model computes in.
        """
        dtype = effective_dtype(requested, on_gpu)
        width = _FLOAT_BYTES[float_of(dtype, sizes.float_type, on_gpu)]
        weights = sizes.stored_bytes
        if not stays_quantized(sizes.quantization_bits, dtype):
            weight_bytes: float = width
            if dtype in QUANTIZED:
                # Each group has a scale and a bias.
                weight_bytes = QUANTIZED[dtype] / 8 + 2 * width / QUANTIZATION_GROUP
            weights = int((sizes.parameters - sizes.tower_parameters) * weight_bytes) + sizes.tower_parameters * width
        tokens = min(tokens, sizes.context_length)
        cache = sizes.kv_values_per_token * width * tokens
        return cls(weights, cache, tokens, precision_text(sizes, dtype), image_bytes=sizes.image_bytes)

    def fit(self, room: MemoryRoom) -> Fit:
        """Return how a model fits into the room."""
        if self.total_bytes > room.limit_bytes:
            return Fit.TOO_LARGE
        tight = self.total_bytes > min(room.free_bytes, _TIGHT_SHARE * room.limit_bytes)
        return Fit.TIGHT if tight else Fit.FITS


def effective_dtype(requested: Dtype, on_gpu: bool) -> Dtype:
    """Return the requested precision; `auto` means float32 on a CPU, and stays `auto` on a GPU: as stored."""
    return Dtype.FLOAT32 if requested is Dtype.AUTO and not on_gpu else requested


def stays_quantized(own_bits: int | None, dtype: Dtype) -> bool:
    """Return whether already quantised weights stay as they are."""
    return own_bits is not None and (dtype is Dtype.AUTO or own_bits == QUANTIZED.get(dtype))


def float_of(dtype: Dtype, stored: Dtype, on_gpu: bool) -> Dtype:
    """Return the type that a precision computes in: its own type if it is one of floats.

    Otherwise, for quantised weights and `auto`: on a CPU float32, on a GPU the type in which the model is stored,
    except that weights stored as float32 are quantised with bfloat16.

    On a CPU quantised weights compute in float32: MLX's float16 kernel for 4-bit weights takes 3.4 s a row there for
    135M parameters, its float32 kernel 0.1 s. On a GPU they compute in the 16-bit type that the model is stored in:
    values stored as bfloat16 may be beyond float16, and so may activations of some families.
    """
    if dtype in _FLOAT_BYTES:
        return dtype
    if not on_gpu:
        return Dtype.FLOAT32
    return Dtype.BFLOAT16 if dtype in QUANTIZED and stored is Dtype.FLOAT32 else stored


def precision_text(sizes: ModelSizes, dtype: Dtype) -> str:
    """Return the name of the precision that weights are held in, such as `float16` or `4bit`."""
    if stays_quantized(sizes.quantization_bits, dtype):
        return f"{sizes.quantization_bits}bit"
    return (sizes.float_type if dtype is Dtype.AUTO else dtype).value


def each_need(need: MemoryNeed, ranks: int) -> MemoryNeed:
    """Return what each of several ranks needs; embeddings and output, which every rank has, count as divided too."""
    return replace(need, weights_bytes=-(-need.weights_bytes // ranks), cache_bytes=-(-need.cache_bytes // ranks))


def macs_for(need: MemoryNeed, rooms: Sequence[MemoryRoom]) -> int:
    """Return over how many Macs a model fits: 1 for the first, all of them, or 0 for none.

    Args:
        need: The model's.
        rooms: The room of each Mac, this one's first.
    """
    if need.fit(rooms[0]) is not Fit.TOO_LARGE:
        return 1
    each = each_need(need, len(rooms))
    return 0 if any(each.fit(room) is Fit.TOO_LARGE for room in rooms) else len(rooms)


def describes_drafter(config: Mapping[str, object]) -> bool:
    """Return whether a configuration has a setting that only drafters have."""
    is_own_format = {"format", "architecture", "target"} <= config.keys()
    return is_own_format or config.get("model_type") == APPLE_MODEL_TYPE or not _TELLING.isdisjoint(config)


class HeadKind(StrEnum):
    """The kinds of drafter heads.

    `recurrent` is a small RNN over the target's last hidden state (Zhang et al. 2024, arXiv 2403.09919); `block` drafts
    a block of tokens in one pass (DFlash and what was built on it); `eagle3` is one transformer layer with a KV cache
    of its own (Li et al. 2025, arXiv 2503.01840); `mtp` is the model's own multi-token-prediction layer (DeepSeek-V3,
    arXiv 2412.19437); `assistant` is Gemma 4's, which attends to the target's own keys and values.
    """

    RECURRENT = "recurrent"
    BLOCK = "block"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    ASSISTANT = "assistant"

    @property
    def label(self) -> str:
        """Its name for people."""
        return {HeadKind.EAGLE3: "EAGLE-3", HeadKind.MTP: "MTP"}.get(self, self.value.capitalize())


@dataclass(frozen=True, slots=True)
class TargetMatch:
    """Whether a drafter was made for a target, or only fits its sizes.

    Attributes:
        sure: Whether the drafter names the target; otherwise only the sizes fit, as they may with other models.
        text: A sentence for people.
    """

    sure: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class DrafterFit:
    """Whether a drafter fits the loaded model.

    Attributes:
        drafter: A folder or a hub id.
        match: How sure it is that it was made for the model; None if it does not fit.
        problem: A sentence: why it does not fit.
    """

    drafter: str
    match: TargetMatch | None = None
    problem: str = ""


class ModelPart(StrEnum):
    """A part of a model that copies leave out, and that its original has; the name is for people."""

    MTP = "MTP layers"
    VISION = "vision"

    @classmethod
    def in_folder(cls, folder: str) -> "ModelPart":
        """Return what is in a folder, by the folder's name."""
        return cls.VISION if re.search(r"-vision-[0-9a-f]{6}$", folder) else cls.MTP


class DraftKind(StrEnum):
    """The largest kind of draft that a model can verify in one call.

    Attributes:
        NONE: One token.
        FED_AGAIN: Chains. Where only a part of one is accepted, recurrent state is restored and that part fed again.
        CHAIN: Chains.
        TREE: Trees.
    """

    NONE = "none"
    FED_AGAIN = "chains-fed-again"
    CHAIN = "chains"
    TREE = "trees"


@dataclass(frozen=True, slots=True)
class Capability:
    """What a model can verify in one call, as measured.

    Attributes:
        reason: A clause: why not trees; empty if it takes them.
        inputs: Number of inputs that were tried; 0 where the model's caches or an error ended the trial.
        errors: Medians of the measured errors, in standard deviations of the logits; see `verification.capability`.
    """

    kind: DraftKind
    reason: str = ""
    inputs: int = field(default=0, compare=False)
    errors: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """Facts about a model from the headers of its files.

    Attributes:
        family: Architecture, such as `llama`; a drafter's kind, `vision` for a tower; empty if unknown.
        sizes: Sizes for its need of memory; None if it cannot be loaded.
        quantization: Precision such as `4-bit` or `bfloat16`; empty if unknown.
        problem: A sentence: why it cannot be loaded or used to draft; empty if it can.
        is_model: Whether it is a language model, loadable or not; the hub's cache also has other things.
        tokens: Hash of the tokenizer's file: models with the same hash have the same tokens.
        is_drafter: Whether it drafts for a model, or sees for one if `sees`, and cannot be loaded alone.
        states_mtp: Whether its configuration names MTP layers, of a family whose layers rdchat can use.
        sees: Whether it has a vision tower that rdchat can use.
        blind: Why it does not see although its configuration says so, a sentence; `NO_VISION` if the original may.
        has_template: Whether it has a chat template, so that it was made to answer.
    """

    family: str = ""
    sizes: ModelSizes | None = None
    quantization: str = ""
    problem: str = ""
    is_model: bool = True
    tokens: str = ""
    is_drafter: bool = False
    states_mtp: bool = False
    sees: bool = False
    blind: str = ""
    has_template: bool = False


@dataclass(frozen=True, slots=True)
class ModelCard(FolderFacts):
    """A model folder, a drafter head, or an unfinished download.

    Its name and origin are always known. Readers of its files, and checks against a model, add the rest.

    Attributes:
        name: Name for people: a hub id, the publisher and name of LM Studio's folders, or the folder's name.
        model: What `Engine.load` or `DraftSettings.drafter` takes; empty for the default model.
        origin: Owner of the folder that it is in, for people: an `Origin`, or the name of a remote server.
        path: The folder; a repository's folder for an unfinished download.
        repository: The hub id, if it is in the hub's cache.
        revision: Branch, tag or commit there.
        disk_bytes: Size of its files on this machine.
        changed: When its folder was changed, in seconds since 1970.
        tried: What it can verify; None if that was not tried yet.
        download_bytes: Size of the complete download; 0 for anything but an unfinished one.
        kind: Kind of a drafter head; None if unknown.
        match: How sure it is that the drafter was made for the model; None if unknown.
        weights_bytes: Size of its weight files; for the loaded model, its size in memory.
        is_loaded: Whether it is the model or drafter in use.
    """

    name: str
    model: str
    origin: str
    path: Path = Path()
    repository: str = ""
    revision: str = "main"
    # By its files
    disk_bytes: int = 0
    changed: float = 0.0
    tried: Capability | None = None
    # Of an unfinished download
    download_bytes: int = 0
    # Of a drafter head
    kind: HeadKind | None = None
    match: TargetMatch | None = None
    weights_bytes: int = 0
    is_loaded: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether it is an unfinished download."""
        return self.download_bytes > 0

    @property
    def listed_name(self) -> str:
        """Its name in `rdchat models list`, which every command accepts.

        It is the model's name, its path in the person's own folder, or NAME@REVISION.
        """
        if self.origin == Origin.CHOSEN:
            return str(self.path)
        return self.name if self.revision == "main" else f"{self.name}@{self.revision}"

    @property
    def hub_id(self) -> str:
        """Its hub id, or its probable one in LM Studio's folders; empty for others."""
        if self.origin == Origin.LM_STUDIO:
            return f"{self.path.parent.name}/{self.path.name}"
        return self.repository

    @property
    def can_be_loaded(self) -> bool:
        return not (self.problem or self.is_unfinished or self.is_drafter)

    @property
    def fits_surely(self) -> bool:
        """Whether it is known to be made for the model."""
        return self.match is not None and self.match.sure


def remote_model(address: str | None) -> tuple[str, str] | None:
    """Return the remote server's name and the model's, of `remote:SERVER/MODEL`; None for other addresses."""
    server, _, model = (address or "").removeprefix(_REMOTE).partition("/")
    is_remote = bool(address and address.startswith(_REMOTE) and server and model)
    return (server, model) if is_remote else None


def remote_address(server: str, model: str) -> str:
    """Return the address of a model of a remote server; the server's name has no slash."""
    return f"{_REMOTE}{server}/{model}"


def ranked_model(address: str | None) -> tuple[tuple[str, ...], str | None] | None:
    """Return the hosts and the model of `ranks:HOST,HOST:MODEL`; None for other addresses.

    The first host is this Mac. The model is None for the default model.
    """
    if not address or not address.startswith(_RANKS):
        return None
    hosts, _, model = address.removeprefix(_RANKS).partition(":")
    return tuple(host for host in hosts.split(",") if host), model or None


def ranked_address(hosts: tuple[str, ...], model: str | None) -> str:
    """Return the address of a model over hosts, whose names have no comma and no colon."""
    return f"{_RANKS}{','.join(hosts)}:{model or ''}"
