"""What a training is asked to do, what it will take, and what can be seen to be wrong before it begins."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from rdchat import paths
from rdchat.errors import InvalidSettingError, ModelError, RdchatError, StorageFullError
from rdchat.inference.drafter_folder import CARD, CONFIG, WEIGHTS
from rdchat.inference.recurrent_head import Cell, HeadConfig
from rdchat.inference.target import LoadedModel
from rdchat.inference.target_binding import TargetBinding
from rdchat.inference.target_embeddings import TargetEmbeddings
from rdchat.inference.training.data import chat_template
from rdchat.inference.training.lockstep import check_lockstep
from rdchat.inference.training.samples import TEACHER_TOKENS
from rdchat.inference.training.trainer import Recipe

_FEWEST_TOKENS = 1000
_SPARE_BYTES = 500_000_000  # of the disk that a training leaves alone
_DISK_SHARE = 0.5  # of the room on the disk that hidden states may take
_WINDOW_BYTES = 512 * 2**20  # of memory for hidden states
_TOKEN_BYTES = 6  # of the data on disk for each answer token, its share of the question included


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """What is asked for.

    Attributes:
        out: Folder of the drafter.
        tokens: Answer tokens to train on.
        hours: Where given: how long everything may take, interruptions left out; as much data is made as that leaves
            time for, up to `tokens`.
        seed: Of everything drawn.
        prompts: Questions of the person's own, mixed with the built-in ones.
        from_chats: Whether some of them come from stored conversations; the card says so.
        lanes: Conversations decoded together.
        vocabulary: Tokens that can be drafted, at most.
        size: Width of the head's layers; 0 is the target's.
        cell: How a token changes the head's state.
        target_layers: Layers of the target that are read behind the trunk's output.
        recipe: How it is trained.

    Raises:
        InvalidSettingError: If a number is out of range.
    """

    out: Path
    tokens: int = 1_000_000
    hours: float | None = None
    seed: int = 0
    prompts: tuple[str, ...] = ()
    from_chats: bool = False
    lanes: int = 128
    vocabulary: int = 8192
    size: int = 0
    cell: Cell = Cell.RNN
    target_layers: tuple[int, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        if self.tokens < _FEWEST_TOKENS:
            raise InvalidSettingError(f"tokens {self.tokens} is out of range: it must be at least {_FEWEST_TOKENS:,}.")
        if self.hours is not None and not 0 < self.hours <= 1000:
            raise InvalidSettingError(f"hours {self.hours} is out of range: it must be above 0 and at most 1000.")
        if not 0 <= self.seed < 2**31:
            raise InvalidSettingError(f"seed {self.seed} is out of range: it must be from 0 to 2**31 - 1.")
        if self.lanes < 1 or self.vocabulary < TEACHER_TOKENS * 2:
            raise InvalidSettingError("The number of lanes or the draft vocabulary is too small.")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training that can begin.

    Attributes:
        settings: What was asked.
        binding: The target.
        folder: Where data and unfinished training are kept: a folder of its own for each target and kind of data.
        keep_states: Whether the hidden states are kept on disk; else they are computed again in every epoch.
        data_bytes: Bytes on disk of all data.
        window_tokens: Answer tokens whose hidden states are in memory together.
        memory_bytes: Bytes of memory that training takes beside the model.
    """

    settings: TrainingSettings
    binding: TargetBinding
    folder: Path
    keep_states: bool
    data_bytes: int
    window_tokens: int
    memory_bytes: int

    def head_config(self, hidden_size: int, vocabulary: int) -> HeadConfig:
        """Return the shape of the head for a target's width and the draft vocabulary that the data gave."""
        size = self.settings.size or hidden_size
        layers = self.settings.target_layers
        return HeadConfig(hidden_size, vocabulary, size, size, cell=self.settings.cell, target_layers=layers)


def make_plan(model: LoadedModel, settings: TrainingSettings, resume: bool) -> TrainingPlan:
    """Look everything over before any long work begins.

    Args:
        model: The target.
        settings: What is asked.
        resume: Whether an interrupted training may be continued.

    Raises:
        ModelError: If no drafter can be trained for the model: no hidden states, no chat template, recurrent state.
        RdchatError: If the output folder holds something else, or a training was begun and `resume` is false.
        StorageFullError: If there is no room for the data.
    """
    check_lockstep(model)
    chat_template(model)
    width = _hidden_width(model, settings.target_layers)
    binding = TargetBinding.of(model.info)
    _check_out(settings.out, binding)
    folder = (
        paths.cache_dir() / "training" / f"{binding.name.replace('/', '-')}-{binding.hash[:8]}" / _data_key(settings)
    )
    if not resume and any(folder.glob("*")):
        raise RdchatError(
            f"A training for {binding.name} with the same seed and prompts has begun already.",
            f"Continue it with --resume, give another --seed, or delete {folder}.",
        )
    state_bytes, tokens = 2 * width, settings.tokens
    room = _room(folder)
    keep_states = tokens * (state_bytes + _TOKEN_BYTES) <= room * _DISK_SHARE
    data_bytes = tokens * (_TOKEN_BYTES + (state_bytes if keep_states else 0))
    if data_bytes > room:
        raise StorageFullError(
            f"The data would take {data_bytes / 1e9:.1f} GB on the disk of {folder}, which has room for "
            f"{max(room, 0) / 1e9:.1f} GB.",
            "Make room there, or train on fewer --tokens.",
        )
    window_tokens = max(_WINDOW_BYTES // state_bytes, 1)
    table = model.info.vocabulary_size * TargetEmbeddings(model.network, model.info.vocabulary_size).width * 4
    memory = 2 * table + min(tokens, window_tokens) * state_bytes + tokens * TEACHER_TOKENS * 4
    return TrainingPlan(settings, binding, folder, keep_states, data_bytes, window_tokens, memory)


def _hidden_width(model: LoadedModel, layers: tuple[int, ...]) -> int:
    """Run the network once and look at what the seams record."""
    import mlx.core as mx  # noqa: PLC0415

    model.seams.read_layers(layers)
    model.network(mx.array([[0]]))
    if model.seams.hidden is None:
        raise ModelError(
            f"{model.info.name} does not give its hidden states, which a recurrent drafter reads.",
            "Pick another model.",
        )
    return int(model.seams.hidden.shape[-1])


def _check_out(out: Path, binding: TargetBinding) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise RdchatError(f"{out} is a file.", "Name a folder for the drafter.")
    names = {path.name for path in out.iterdir()}
    if not names:
        return
    try:
        target = json.loads((out / CONFIG).read_bytes())["target"]["hash"]
    except (OSError, ValueError, KeyError, TypeError):
        target = None
    if target != binding.hash or names - {CONFIG, WEIGHTS, CARD}:
        raise RdchatError(f"{out} holds something other than a drafter for {binding.name}.", "Name a new folder.")


def _data_key(settings: TrainingSettings) -> str:
    facts = json.dumps([settings.seed, settings.lanes, settings.target_layers, settings.prompts])
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def _room(folder: Path) -> int:
    """Return the bytes that a training may write: what is free on the folder's disk, less what it leaves alone."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free - _SPARE_BYTES
