"""The plan of a training: record and budget, and the checks before it begins.

`make_plan` does all that can fail early: a training then takes minutes to hours (`training_run`). Each target, seed and
kind of questions has a folder of its own, in which an interrupted training is found again by its record.
"""

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError, RdchatError, StorageFullError, file_errors
from rdchat.files import plain, read_json, write_json
from rdchat.inference.api import TrainingSettings
from rdchat.inference.device import memory_room, total_memory_bytes
from rdchat.inference.drafters import cannot_verify
from rdchat.inference.drafting.checkpoints.drafter_folder import target_named_in
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.data_maker import (
    MAX_SEQUENCE_TOKENS,
    SHARDS,
    Template,
    chat_template,
    check_batched_decoding,
)
from rdchat.inference.training.samples import TEACHER_TOKENS
from rdchat.inference.verification import HiddenReads, LoadedModel, TargetEmbeddings
from rdchat.wording import size_text

# Share of the machine's memory for sequences and weights.
_BATCH_SHARE = 0.6
# Bytes that are left free on the disk.
_SPARE_BYTES = 500_000_000
# Memory for hidden states: a share of the machine's, at least this. Data that fits is read once, not every epoch.
_WINDOW_BYTES = 512 * 2**20
_WINDOW_SHARE = 0.2
# On disk for each answer token, with its share of the question.
_DATA_TOKEN_BYTES = 10
# In memory for each answer token: ids of it and its question as Python objects, facts, the teacher's top-k.
_TRAINING_TOKEN_BYTES = 80 + 4 * TEACHER_TOKENS
# Memory for whitening, batches and the optimiser.
_MEASURED_BYTES = 200_000_000
# The record of a training, in its folder.
_FILE = "begun.json"
# Longer questions of the person's own are left out, because all of their batch would wait for them.
MAX_QUESTION_TOKENS = 400
_ANOTHER = "Choose another model."


@dataclass(frozen=True, slots=True)
class Budget:
    """Disk space and memory of a training.

    Attributes:
        sequences: Conversations decoded together; the same at every start.
        disk_bytes: Disk space of the conversations.
        window_tokens: Tokens whose hidden states are in memory at a time.
        memory_bytes: Limit of the memory, without the model's.
    """

    sequences: int
    disk_bytes: int
    window_tokens: int
    memory_bytes: int


def check_disk(folder: Path, data_bytes: int) -> None:
    """Check that the disk has room for a training's data that a folder does not have yet; the folder may not exist.

    Raises:
        StorageFullError: If there is no room.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    needed = max(data_bytes - sum(path.stat().st_size for path in folder.glob("*")), 0)
    room = max(shutil.disk_usage(existing).free - _SPARE_BYTES, 0)
    if needed > room:
        raise StorageFullError(
            f"The training data needs {size_text(needed)} on the disk of {folder}, which has room for "
            f"{size_text(room)}.",
            "Free some space, or train on fewer tokens.",
        )


@dataclass(slots=True)
class RunRecord:
    """The record of a training, stored as `begun.json` in its folder.

    Attributes:
        dtype: Precision of the target.
        before, after: Tokens around a question; some chat templates include the date.
        chat_questions: Questions from stored chats, fixed at the start since chats change.
        trained: Steps done and planned of each recipe whose training has ended.
    """

    dtype: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    chat_questions: tuple[str, ...] = ()
    trained: dict[str, list[int]] = field(default_factory=dict)

    def template(self, model: LoadedModel) -> Template:
        """Return the tokens around a question, with those that end a turn."""
        return Template(self.before, self.after, model.end_tokens)

    def write_record(self, folder: Path) -> None:
        """Write the record to a training's folder; see `write_json`."""
        write_json(folder / _FILE, asdict(self))

    @classmethod
    def read_record(cls, folder: Path, model: LoadedModel, resume: bool) -> "RunRecord | None":
        """Return the record in a folder; None where no training has begun.

        Raises:
            RdchatError: If a training has begun but is not to be resumed, the record is damaged, or the training began
                in another precision.
        """
        path = folder / _FILE
        hint = f"Delete {folder} to start again."
        if not resume and any(folder.glob("*")):
            raise RdchatError(
                f"A training for {model.info.name} with the same seed and prompts has already begun.",
                f"Continue it with --resume, use another --seed, or delete {folder}.",
            )
        if not path.exists():
            return None
        try:
            record = plain(cls, read_json(path, hint))
        except (ValueError, TypeError) as error:
            raise RdchatError(f"{path} is damaged: {error}.", hint) from error
        if record.dtype != model.info.dtype:
            raise RdchatError(
                f"The training in {folder} began with the model in {record.dtype}, not {model.info.dtype}.",
                f"Load the model in {record.dtype}, or begin another training with another seed.",
            )
        return record


def make_budget(model: LoadedModel, width: int, settings: TrainingSettings) -> Budget:
    """Return the budget of a training that fits in memory.

    Conversations are decoded before the head is trained, so the larger of the two needs is the limit.

    Args:
        model: The target.
        width: Width of the hidden states that the drafter reads.
        settings: Its `sequences` are decoded together if so many fit.

    Raises:
        DoesNotFitError: If there is not enough memory.
    """
    size = model.info.vocabulary_size
    total_bytes = total_memory_bytes()
    sequence_bytes = _sequence_bytes(model)
    most_sequences = (int(total_bytes * _BATCH_SHARE) - model.info.weights_bytes) // sequence_bytes
    sequences = max(min(settings.sequences, most_sequences), 1)
    state_bytes = 2 * width
    window_bytes = max(_WINDOW_BYTES, int(total_bytes * _WINDOW_SHARE))
    # The token embeddings in float32; whitening makes copies of them.
    table_bytes = 4 * size * TargetEmbeddings(model.network, size).width
    states_bytes = min(settings.tokens * state_bytes, window_bytes)
    training_bytes = 3 * table_bytes + states_bytes + settings.tokens * _TRAINING_TOKEN_BYTES + _MEASURED_BYTES
    memory_bytes = max(sequences * sequence_bytes, training_bytes)
    if memory_bytes > (limit := memory_room().limit_bytes) and not settings.anyway:
        raise DoesNotFitError(
            f"The training needs {size_text(memory_bytes)} of memory besides the model, but only "
            f"{size_text(limit)} are free.",
            "Close other apps, train on fewer tokens, or choose a smaller model.",
        )
    return Budget(sequences, settings.tokens * _DATA_TOKEN_BYTES, max(window_bytes // state_bytes, 1), memory_bytes)


def _sequence_bytes(model: LoadedModel) -> int:
    """Return the memory of a conversation that is decoded; a call of one token shows what a token's rows take."""
    caches = make_prompt_cache(model.network)
    model.network(mx.array([[0]]), cache=caches)
    # The caches have room for more tokens than this one: axis 2 is how many.
    token_bytes: int = sum(array.nbytes // array.shape[2] for layer in caches for array in (layer.keys, layer.values))
    # Logits, and log-probabilities of this step and the last, in float32.
    return MAX_SEQUENCE_TOKENS * token_bytes + 3 * 4 * model.info.vocabulary_size


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

    def description(self, resume: bool) -> str:
        """Return what the training needs, in sentences; `resume` is whether an earlier one was to continue."""
        begun = "Resuming" if self.resumed else "Training"
        text = (
            f"{begun} a drafter for {self.binding.name}: {self.settings.tokens:,} answer tokens, up to "
            f"{size_text(self.budget.disk_bytes)} of disk in {self.folder}, {size_text(self.budget.memory_bytes)} of "
            f"memory besides the model."
        )
        if resume and not self.resumed:
            text += " There was no training with these options to resume."
        if self.left_out:
            text += f" {self.left_out:,} of your questions are too long and were left out."
        return text


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
    binding = TargetBinding.for_model(model.info)
    _check_out(settings.out, binding)
    trainings = paths.cache_dir() / "training" / f"{binding.name.replace('/', '-')}-{binding.hash[:8]}"
    budget = make_budget(model, width, settings)
    folder = trainings / _data_key(settings, budget.sequences)
    record = RunRecord.read_record(folder, model, resume)
    check_disk(folder / SHARDS, budget.disk_bytes)
    all_chat_questions = record.chat_questions if record else settings.chat_questions
    prompts = _short(model, settings.prompts)
    chat_questions = _short(model, all_chat_questions)
    left_out = len(settings.prompts) + len(all_chat_questions) - len(prompts) - len(chat_questions)
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
    model.hooks.record_states(reads)
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
    """Refuse a folder that the drafter cannot be written to, or that has something else than this target's drafter."""
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
    """Return the questions that are not too long."""
    return tuple(text for text in prompts if len(model.prompts.encode_text(text)) <= MAX_QUESTION_TOKENS)


def _data_key(settings: TrainingSettings, sequences: int) -> str:
    """Return a name for this kind of data; questions from chats do not change it, since chats change."""
    chats = ["chats"] if settings.chat_questions else []
    facts = json.dumps([settings.seed, sequences, settings.prompts, *chats])
    return hashlib.sha256(facts.encode()).hexdigest()[:12]
