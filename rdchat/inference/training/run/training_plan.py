"""The plan of a training: settings, budget, and the checks before it begins."""

import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from rdchat import paths
from rdchat.errors import ModelError, RdchatError, file_error
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.requests import require
from rdchat.inference.api.training import DEFAULT_TOKENS, TRAINED_KINDS
from rdchat.inference.drafters import cannot_verify
from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter, load_drafter, target_named_in
from rdchat.inference.drafting.checkpoints.recurrent_layout import StoredDrafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, Output
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data.batched_decoding import check_batched_decoding
from rdchat.inference.training.data.data_maker import chat_template, encode
from rdchat.inference.training.data.shards import TrainingConversation, read_answers, shipped_path
from rdchat.inference.training.heads.recipes import DRAFT_VOCABULARY, Recipe, default_recipe
from rdchat.inference.training.heads.samples import TEACHER_TOKENS
from rdchat.inference.training.run.budget import Budget, TrainingMemory
from rdchat.inference.training.run.run_record import RunRecord
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

_MIN_TOKENS, _MAX_TOKENS, _MAX_EPOCHS = 1000, 100_000_000, 100
# Longer questions of the person's own are left out, because their whole batch would wait for them.
MAX_QUESTION_TOKENS = 400
_ANOTHER = "Choose another model."
_OTHER_START = "Give a folder that `rdchat train-drafter` made for this model, or leave out --start-from."


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training.

    Raises:
        InvalidSettingError: If a number is out of range.
    """

    out: Path  # folder of the drafter
    tokens: int = DEFAULT_TOKENS  # answer tokens to train on
    seed: int = 0  # of all random draws
    prompts: tuple[str, ...] = ()  # the person's own questions, mixed with the built-in ones
    # More of them, from stored chats; the card says that there were some. A resumed training keeps those it began with.
    asked: tuple[str, ...] = ()
    sequences: int = 128  # conversations decoded in one batch; fewer where memory is short
    vocabulary: int = 12288  # most tokens that can be drafted
    # Layers of the target that are read; a recurrent head also reads the trunk's output. None leaves the choice to
    # `spread_layers` or, for EAGLE-3, to `eagle3_layers`.
    target_layers: tuple[int, ...] | None = None
    recipe: Recipe = field(default_factory=Recipe)  # the hyperparameters, for `kind`
    kind: HeadKind = HeadKind.RECURRENT  # of the head
    anyway: bool = False  # whether to begin even if memory seems too small
    # Folder of a recurrent drafter of the same target to train further. Its shape replaces `vocabulary` and
    # `target_layers`.
    start: Path | None = None

    @classmethod
    def of_kind(
        cls,
        kind: HeadKind,
        out: Path,
        *,
        tokens: int = DEFAULT_TOKENS,
        seed: int = 0,
        start: Path | None = None,
        **others: Any,
    ) -> "TrainingSettings":
        """Return the usual settings of a kind of head."""
        recipe = default_recipe(kind, seed, tokens, further=start is not None)
        return cls(
            out, tokens, seed, vocabulary=DRAFT_VOCABULARY[kind], recipe=recipe, kind=kind, start=start, **others
        )

    def __post_init__(self) -> None:
        bounds = f"from {_MIN_TOKENS:,} to {_MAX_TOKENS:,}"
        require(_MIN_TOKENS <= self.tokens <= _MAX_TOKENS, "tokens", self.tokens, bounds)
        require(self.kind in TRAINED_KINDS, "kind", self.kind, " or ".join(TRAINED_KINDS))
        require(0 <= self.seed < 2**31, "seed", self.seed, "from 0 to 2**31 - 1")
        require(self.sequences >= 1, "sequences", self.sequences, "at least 1")
        require(self.vocabulary >= 2 * TEACHER_TOKENS, "vocabulary", self.vocabulary, f"at least {2 * TEACHER_TOKENS}")
        epochs = self.recipe.epochs
        require(1 <= epochs <= _MAX_EPOCHS, "epochs", epochs, f"from 1 to {_MAX_EPOCHS}")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training that can begin."""

    settings: TrainingSettings  # as asked for, with as many sequences as fit and without questions that are too long
    binding: TargetBinding  # the target
    folder: Path  # folder of the data and the unfinished training, one for each target and kind of data
    record: RunRecord  # state of earlier runs, or a new record
    budget: Budget  # disk space and memory
    left_out: int  # questions of the person's own that are too long
    resumed: bool  # whether an earlier training continues
    reads: HiddenReads  # the hidden states that are read: the trunk's output, for the teacher, then the layers'
    start: StoredDrafter | None  # the drafter to train further; None for a fresh head

    def head_config(self, model: LoadedModel) -> HeadConfig:
        """Return the shape of a recurrent head; the data may turn out to have fewer draftable tokens."""
        if self.start is not None:
            return self.start.head.config
        width = TargetEmbeddings(model.network, model.info.vocabulary_size).width
        return HeadConfig(width, self.settings.vocabulary, width, width, target_layers=self.reads.layers)


def make_plan(model: LoadedModel, settings: TrainingSettings, resume: bool) -> TrainingPlan:
    """Check model, settings, folders, disk and memory before any long work begins.

    Args:
        model: The target.
        settings: As asked for.
        resume: Whether an interrupted training may be continued.

    Raises:
        ModelError: If no drafter can be trained for the model, for example without hidden states or chat template.
        RdchatError: If the output folder holds something else, a training was begun and `resume` is false, or all
            questions are too long.
        StorageError: If the output folder cannot be written to.
        StorageFullError: If there is no room for the data.
        DoesNotFitError: If there is not enough memory.
    """
    recurrent, start = settings.kind is HeadKind.RECURRENT, None
    if settings.start is not None:
        start = _startable(settings.start, model, settings.kind)
        settings = replace(settings, target_layers=start.head.config.target_layers)
    layers = settings.target_layers
    if layers is None:
        layers = spread_layers(model) if recurrent else eagle3_layers(model)
        settings = replace(settings, target_layers=layers)
    reads = HiddenReads(layers, normalised=recurrent)
    width = _check_hidden_states(model, reads)
    check_batched_decoding(model)
    binding = TargetBinding.of(model.info)
    _check_out(settings.out, binding)
    need = TrainingMemory(model, width)
    fitting = replace(settings, sequences=need.sequences(settings.sequences))
    folder = _folder(binding, fitting)
    record = _begun(folder, binding, model, resume)
    asked = record.asked if record else settings.asked
    fitting = replace(fitting, prompts=_short(model, settings.prompts), asked=_short(model, asked))
    left_out = len(settings.prompts) - len(fitting.prompts) + len(asked) - len(fitting.asked)
    if left_out and not fitting.prompts and not fitting.asked:
        raise RdchatError(
            f"All questions are longer than {MAX_QUESTION_TOKENS} tokens.", "Use shorter ones, or leave out --prompts."
        )
    keep_states = record.keep_states if record else None
    if not recurrent:
        keep_states = False  # those of whole conversations would need several times the space
    budget = need.budget(settings.tokens, fitting.sequences, folder, keep_states, anyway=settings.anyway)
    known = record
    if known is None:
        template = chat_template(model)
        known = RunRecord(budget.keep_states, model.info.dtype, template.before, template.after)
    known = replace(known, keep_states=budget.keep_states, asked=fitting.asked)
    return TrainingPlan(
        fitting, binding, folder, known, budget, left_out, resumed=record is not None, reads=reads, start=start
    )


def shipped_answers(binding: TargetBinding, settings: TrainingSettings) -> list[TrainingConversation]:
    """Return the conversations shipped with rdchat for a target; none if the person's own questions are used."""
    return [] if settings.prompts or settings.asked else read_answers(shipped_path(binding.hash))


def spread_layers(model: LoadedModel) -> tuple[int, ...]:
    """Return the layers after a quarter, a half and three quarters of the trunk; none if they cannot be read.

    The last layer's output mostly predicts the next token; earlier layers hold more of the text (Li et al. 2025,
    "EAGLE-3", arXiv 2503.01840, reads three layers for that).
    """
    count = len(getattr(model.network, "layers", ()))
    return tuple(sorted({layer for layer in (count // 4, count // 2, count - count // 4) if layer < count}))


def eagle3_layers(model: LoadedModel) -> tuple[int, ...]:
    """Return the layers after a quarter, after a half, and the last but one.

    Other tools read the input of a layer, so they cannot read the last one's output. EAGLE-3's own choice ends three
    layers earlier; for a head with a single layer, states that are almost final are better.
    """
    count = len(getattr(model.network, "layers", ()))
    return tuple(sorted({min(layer, count - 1) for layer in (count // 4, count // 2, max(count - 2, 0))}))


def _startable(folder: Path, model: LoadedModel, kind: HeadKind) -> StoredDrafter:
    """Read a drafter to train further.

    Raises:
        ModelError: If it is not one of ours for this target, or is quantised.
        RdchatError: If another kind is to be trained.
    """
    if kind is not HeadKind.RECURRENT:
        raise RdchatError(f"{kind.words} heads cannot be trained further.", "Leave out --start-from, or --kind.")
    if inspect_drafter(folder) is not HeadKind.RECURRENT:
        raise ModelError(
            f"{folder} has no recurrent drafter. Only recurrent drafters can be trained further.", _OTHER_START
        )
    stored = load_drafter(folder, model)
    assert isinstance(stored, StoredDrafter), "recurrent drafters are StoredDrafters"
    shape = stored.head.config
    others = not shape.project_input or shape.input_rank or shape.output is Output.OWN
    if stored.target is None or shape.quantization_bits or others:
        raise ModelError(f"{folder} has a drafter that was not trained by rdchat.", _OTHER_START)
    return stored


def _check_hidden_states(model: LoadedModel, reads: HiddenReads) -> int:
    """Check that a drafter can work for the model at all; return the width of the hidden states that it reads."""
    name = model.info.name
    if problem := cannot_verify(model):  # first, since it also finds out whether the trunk returns hidden states
        raise ModelError(problem, _ANOTHER)
    model.hooks.read(reads)
    model.network(mx.array([[0]]))
    if model.hooks.hidden is None:
        raise ModelError(f"{name} does not provide the hidden states that a drafter reads.", _ANOTHER)
    width = int(model.hooks.hidden.shape[-1])
    embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
    if width != embeddings.width * (1 + len(reads.layers)):
        raise ModelError(f"{name}'s hidden states are not as wide as its token embeddings.", _ANOTHER)
    if not mx.all(mx.isfinite(model.hooks.hidden.astype(mx.float16))).item():
        raise ModelError(f"{name}'s hidden states are too large for 16 bits.", _ANOTHER)
    return width


def _check_out(out: Path, binding: TargetBinding) -> None:
    if not paths.is_utf8(out):
        raise RdchatError(f"The path {out} is not UTF-8 text, which MLX needs.", "Choose another folder.")
    if out.exists():
        if not out.is_dir():
            raise RdchatError(f"{out} is a file.", "Choose a folder for the drafter.")
        if target_named_in(out) not in {None, binding.hash}:
            raise RdchatError(f"{out} has something other than a drafter for {binding.name}.", "Choose a new folder.")
    place = next(folder for folder in (out, *out.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise file_error(error, f"The drafter cannot be written to {out}", "Choose another folder.") from error


def _short(model: LoadedModel, prompts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in prompts if len(encode(model, text)) <= MAX_QUESTION_TOKENS)


def _folder(binding: TargetBinding, settings: TrainingSettings) -> Path:
    """Return the folder of this kind of data; questions from chats do not change it, since chats change meanwhile."""
    chats = ["chats"] if settings.asked else []
    # EAGLE-3 stores no hidden states, so its data does not depend on the layers
    layers = settings.target_layers if settings.kind is HeadKind.RECURRENT else None
    facts = json.dumps([settings.seed, settings.sequences, layers, settings.prompts, *chats])
    name = f"{binding.name.replace('/', '-')}-{binding.hash[:8]}"
    return paths.cache_dir() / "training" / name / hashlib.sha256(facts.encode()).hexdigest()[:12]


def _begun(folder: Path, binding: TargetBinding, model: LoadedModel, resume: bool) -> RunRecord | None:
    if not any(folder.glob("*")):
        return None
    if not resume:
        raise RdchatError(
            f"A training for {binding.name} with the same seed and prompts has already begun.",
            f"Continue it with --resume, use another --seed, or delete {folder}.",
        )
    return RunRecord.read(folder, model)
