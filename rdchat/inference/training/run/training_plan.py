"""The plan of a training: settings, budget, and the checks before it begins."""

import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import mlx.core as mx

from rdchat import paths
from rdchat.errors import ModelError, RdchatError, file_errors
from rdchat.inference.api.requests import require
from rdchat.inference.api.training import DEFAULT_TOKENS
from rdchat.inference.drafters import cannot_verify
from rdchat.inference.drafting.checkpoints.drafter_folder import target_named_in
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data.batched_decoding import check_batched_decoding
from rdchat.inference.training.data.data_maker import chat_template
from rdchat.inference.training.data.shards import SHARDS
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.run.budget import Budget, check_disk, make_budget
from rdchat.inference.training.run.run_record import RunRecord
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

_MIN_TOKENS = 1000
_MAX_TOKENS = 100_000_000
_MAX_EPOCHS = 100
# Longer questions of the person's own are left out, because all of their batch would wait for them.
MAX_QUESTION_TOKENS = 400
_ANOTHER = "Choose another model."


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training.

    Attributes:
        out: Folder of the drafter.
        tokens: Answer tokens to train on.
        seed: Seed of all random draws.
        prompts: The person's own questions, mixed with the built-in ones.
        chat_questions: More of them, from stored chats; the card says that there were some. A resumed training uses
            those it began with.
        sequences: Conversations decoded in one batch; fewer where memory is short.
        recipe: The hyperparameters.
        anyway: Whether to begin even if memory seems too small.

    Raises:
        InvalidSettingError: If a number is out of range.
    """

    out: Path
    tokens: int = DEFAULT_TOKENS
    seed: int = 0
    prompts: tuple[str, ...] = ()
    chat_questions: tuple[str, ...] = ()
    sequences: int = 128
    recipe: Recipe = field(default_factory=Recipe)
    anyway: bool = False

    def __post_init__(self) -> None:
        bounds = f"from {_MIN_TOKENS:,} to {_MAX_TOKENS:,}"
        require(_MIN_TOKENS <= self.tokens <= _MAX_TOKENS, "tokens", self.tokens, bounds)
        require(0 <= self.seed < 2**31, "seed", self.seed, "from 0 to 2**31 - 1")
        epochs = self.recipe.epochs
        require(1 <= epochs <= _MAX_EPOCHS, "epochs", epochs, f"from 1 to {_MAX_EPOCHS}")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training that can begin.

    Attributes:
        settings: The given settings, with as many sequences as fit and without questions that are too long.
        binding: The target.
        folder: Folder of the data and the unfinished training, one for each target and kind of data.
        record: State of earlier runs, or a new record.
        budget: Disk space and memory.
        left_out: Number of the person's own questions that are too long.
        resumed: Whether an earlier training continues.
        reads: The hidden states that are read: the trunk's output, for the teacher, then the layers'.
    """

    settings: TrainingSettings
    binding: TargetBinding
    folder: Path
    record: RunRecord
    budget: Budget
    left_out: int
    resumed: bool
    reads: HiddenReads


def make_plan(model: LoadedModel, settings: TrainingSettings, resume: bool) -> TrainingPlan:
    """Check model, settings, folders, disk and memory before any long work begins.

    Args:
        model: The target.
        settings: The given settings.
        resume: Whether an interrupted training may be continued.

    Raises:
        ModelError: If no drafter can be trained for the model, for example without hidden states or chat template.
        RdchatError: If the output folder holds something else, a training was begun and `resume` is false, or all
            questions are too long.
        StorageError: If the output folder cannot be written to.
        StorageFullError: If there is no room for the data.
        DoesNotFitError: If there is not enough memory.
    """
    reads = HiddenReads(spread_layers(model))
    width = _check_hidden_states(model, reads)
    check_batched_decoding(model)
    binding = TargetBinding.of(model.info)
    _check_out(settings.out, binding)
    trainings = paths.cache_dir() / "training" / f"{binding.name.replace('/', '-')}-{binding.hash[:8]}"
    budget = make_budget(model, width, settings.tokens, settings.sequences, anyway=settings.anyway)
    folder = trainings / _data_key(settings, budget.sequences)
    record = _read_record(folder, binding, model, resume)
    check_disk(folder / SHARDS, budget.disk_bytes)
    given = settings.prompts, record.chat_questions if record else settings.chat_questions
    prompts, chat_questions = (_short(model, questions) for questions in given)
    left_out = sum(map(len, given)) - len(prompts) - len(chat_questions)
    if left_out and not prompts and not chat_questions:
        raise RdchatError(
            f"All questions are longer than {MAX_QUESTION_TOKENS} tokens.", "Use shorter ones, or leave them out."
        )
    resumed = record is not None
    if record is None:
        template = chat_template(model)
        record = RunRecord(model.info.dtype, template.before, template.after)
    record = replace(record, chat_questions=chat_questions)
    settings = replace(settings, sequences=budget.sequences, prompts=prompts, chat_questions=chat_questions)
    return TrainingPlan(settings, binding, folder, record, budget, left_out, resumed=resumed, reads=reads)


def spread_layers(model: LoadedModel) -> tuple[int, ...]:
    """Return the layers after a quarter, a half and three quarters of the trunk; none if they cannot be read.

    The last layer's output mostly predicts the next token; earlier layers hold more of the text (Li et al. 2025,
    "EAGLE-3", arXiv 2503.01840, reads three layers for that).
    """
    count = len(getattr(model.network, "layers", ()))
    return tuple(sorted({layer for layer in (count // 4, count // 2, count - count // 4) if layer < count}))


def _check_hidden_states(model: LoadedModel, reads: HiddenReads) -> int:
    """Check that a drafter can work for the model at all; return the width of the hidden states that it reads."""
    name = model.info.name
    if problem := cannot_verify(model):  # It also finds out whether the trunk returns states.
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
    existing = next(folder for folder in (out, *out.parents) if folder.exists())
    with file_errors(f"The drafter cannot be written to {out}", "Choose another folder."):
        tempfile.TemporaryFile(dir=existing).close()


def _short(model: LoadedModel, prompts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in prompts if len(model.prompts.encode_text(text)) <= MAX_QUESTION_TOKENS)


def _data_key(settings: TrainingSettings, sequences: int) -> str:
    """Return a name for this kind of data; questions from chats do not change it, since chats change."""
    chats = ["chats"] if settings.chat_questions else []
    facts = json.dumps([settings.seed, sequences, settings.prompts, *chats])
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def _read_record(folder: Path, binding: TargetBinding, model: LoadedModel, resume: bool) -> RunRecord | None:
    if not any(folder.glob("*")):
        return None
    if not resume:
        raise RdchatError(
            f"A training for {binding.name} with the same seed and prompts has already begun.",
            f"Continue it with --resume, use another --seed, or delete {folder}.",
        )
    return RunRecord.read(folder, model)
