"""Runs a training in phases, from the first question to the drafter's folder. Each phase can be interrupted."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from rdchat import __version__
from rdchat.errors import RdchatError, StorageError
from rdchat.files.atomic_file import JsonLines, make_folder
from rdchat.files.file_lock import FileLock
from rdchat.inference.api.training import Phase, TrainedKind, TrainingProgress
from rdchat.inference.benchmark.draft_counts import report
from rdchat.inference.drafting.checkpoints.drafter_files import WEIGHTS, read_own_drafter, write_drafter
from rdchat.inference.target.memory_errors import device_errors
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.seed_prompts import SeedPromptSource
from rdchat.inference.training.data.shards import ShardFolder
from rdchat.inference.training.run.card import card
from rdchat.inference.training.run.clocks import TimeLimit
from rdchat.inference.training.run.measuring import evaluate, held_out_questions
from rdchat.inference.training.run.phases import DataPhase, TrainPhase
from rdchat.inference.training.run.training_plan import TrainingPlan

_LOG = logging.getLogger(__name__)
_RESTART = "Learning starts again, because the settings or the version changed."
_CLOCK_SAVED_EVERY = 10.0  # seconds of --hours that a crash may not count


class DrafterTraining:
    """Trains one drafter.

    Its folder holds the data, and one folder for each recipe, amount of data and version: the checkpoint, the trained
    drafter, and the results of its evaluation so far.

    Args:
        model: The target.
        plan: From `make_plan`.
        now: A clock, in seconds.
    """

    def __init__(self, model: LoadedModel, plan: TrainingPlan, now: Callable[[], float] = monotonic) -> None:
        self._model, self._plan, self._now = model, plan, now
        self._record = plan.record
        self._limit = TimeLimit(plan.settings.hours, plan.record.spent_s, now)
        model.hooks.read(plan.reads)

    def run(self) -> Generator[TrainingProgress]:
        """Continue from the end of the last run to the end of the training; each event is also a line of `log.jsonl`.

        Raises:
            StorageLockedError: If another process runs the same training.
            StorageFullError: If the disk is full.
            StorageError: If a file cannot be written, or is damaged.
            ModelError: If there is nothing to learn from the model's answers, or learning does not succeed.
            OutOfMemoryError: If there was not enough memory; the work done is kept.
        """
        try:
            yield from self._run()
        except (RdchatError, MemoryError):
            raise
        except Exception as error:
            if not self._plan.resumed:
                raise
            _LOG.exception("A training could not continue")
            raise StorageError(
                f"The training cannot continue: its data in {self._plan.folder} is damaged.",
                "Delete that folder to start again.",
            ) from error

    def _run(self) -> Generator[TrainingProgress]:
        folder = self._plan.folder
        make_folder(folder)
        _check_files(folder)
        lock = FileLock(folder / "lock", "the training data", "Wait until it is done, or stop it.")
        with ExitStack() as stack:
            stack.callback(lock.release)
            stack.enter_context(device_errors("for this training"))
            self._write_record()
            stack.callback(self._write_last)
            self._shards = ShardFolder(folder / "shards", self._model.info.vocabulary_size)
            log, written = stack.enter_context(closing(JsonLines(folder / "log.jsonl"))), self._now()
            for progress in stack.enter_context(closing(self._phases())):  # it saves before the lock is released
                log.append({"at": round(time.time(), 1)} | asdict(progress))
                if self._limit and self._now() - written >= _CLOCK_SAVED_EVERY:
                    self._write_record()
                    written = self._now()
                yield progress

    def _write_record(self) -> None:
        if self._limit:
            self._record.spent_s = self._limit.spent_s
        self._record.write(self._plan.folder)

    def _write_last(self) -> None:
        with suppress(RdchatError):  # an error being raised says more
            self._write_record()

    def _phases(self) -> Generator[TrainingProgress]:
        settings, record = self._plan.settings, self._record
        train = TrainPhase(self._model, self._plan, self._shards, self._limit, self._now)
        maker = DataMaker(
            self._model,
            record.template,
            SeedPromptSource(settings.seed, (*settings.prompts, *settings.asked)).seed_prompt,
            self._shards,
            seed=settings.seed,
            sequences=settings.sequences,
            keep_states=record.keep_states,
        )
        shards = yield from DataPhase(self._plan, maker, self._limit, train.cost, self._now).run()
        self._write_record()
        conversations = [item for shard in shards for item in shard]
        key = self._recipe_key(len(shards))
        place = self._plan.folder / f"recipe-{key}"
        kept = place / "drafter"
        if key not in record.trained:
            yield TrainingProgress(Phase.PREPARE, 0.0, words=self._restart_words(place))
            make_folder(place)
            drafter, steps = yield from train.run(shards, place)
            write_drafter(kept, drafter, "")
            record.trained[key] = steps
            self._write_record()
        questions = held_out_questions(self._model, self._plan.record.template, conversations)
        results = yield from evaluate(self._model, questions, place, self._limit, self._now)
        yield TrainingProgress(Phase.WRITE, 0.0)
        written = read_own_drafter(kept)
        text = card(
            self._plan,
            self._model.info,
            head=written.config,
            steps=record.trained[key],
            conversations=conversations,
            rows=report(results),
        )
        write_drafter(settings.out, written, text)
        yield TrainingProgress(Phase.DONE, 1.0)

    def _restart_words(self, place: Path) -> str:
        """Return a sentence if learning starts again with existing data; else an empty string."""
        others = [path for path in self._plan.folder.glob("recipe-*/training.safetensors") if path.parent != place]
        return "" if place.exists() or not others else _RESTART

    def _recipe_key(self, shards: int) -> str:
        """Return a name for all that learning depends on, so that no other recipe continues it."""
        settings = self._plan.settings
        facts = [asdict(settings.recipe), settings.vocabulary, settings.hours, shards]
        if settings.kind is not TrainedKind.RECURRENT:
            facts += [settings.kind, settings.target_layers]
        if settings.start is not None:
            facts.append(hashlib.sha256((settings.start / WEIGHTS).read_bytes()).hexdigest())
        return hashlib.sha256(json.dumps([__version__, *facts]).encode()).hexdigest()[:12]


def _check_files(folder: Path) -> None:
    """Refuse a folder with a named pipe or a device in it, since opening one may block for ever."""
    for path in folder.rglob("*"):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise StorageError(f"{path} is not an ordinary file.", f"Delete {folder} to start again.")
