"""A training from the first question to the drafter's folder, in phases that can be interrupted at any time."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any

from rdchat import __version__
from rdchat.errors import RdchatError, StorageError
from rdchat.files.atomic_file import JsonLines, make_folder
from rdchat.files.file_lock import FileLock
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.api.training import Phase, TrainingProgress
from rdchat.inference.auto.acceptance import Acceptance
from rdchat.inference.auto.acceptance_file import write_acceptance
from rdchat.inference.auto.calibration import AcceptanceCalibration
from rdchat.inference.benchmark.draft_counts import CountsFile, Result, report
from rdchat.inference.benchmark.evaluation import Evaluation
from rdchat.inference.drafting.checkpoints.drafter_files import WEIGHTS, read_written, write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.session import ChatSession
from rdchat.inference.target.memory_errors import device_errors
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.data_maker import DataMaker
from rdchat.inference.training.data.seed_prompts import SeedPromptSource
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.training.heads.recurrent_objective import RecurrentObjective
from rdchat.inference.training.heads.samples import Answers
from rdchat.inference.training.heads.sequence_objective import SequenceObjective
from rdchat.inference.training.run.card import card
from rdchat.inference.training.run.clocks import Pace, TimeLimit
from rdchat.inference.training.run.data_phase import DataPhase
from rdchat.inference.training.run.train_phase import TrainPhase
from rdchat.inference.training.run.training_plan import TrainingPlan

_LOG = logging.getLogger(__name__)
_EVALUATED = 12  # held-out questions that are decoded at the end
_EVALUATED_TOKENS = 96
_CALIBRATION_PROMPTS = 24  # held-out questions that the acceptance estimates are calibrated on
_CALIBRATION_TOKENS = 48
_DRAFTS = tuple(  # with which they are decoded
    DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=5, lookup_branch=branch)
    for width, branch in ((1, False), (4, False), (4, True))
)
_RESTART = "Learning starts again, because the settings or the version changed."
_CLOCK_SAVED_EVERY = 10.0  # seconds of --hours that an interruption may give back


class DrafterTraining:
    """Trains one drafter.

    Besides the data its folder holds one folder for every recipe, length and version: the checkpoint, the drafter once
    it is trained, and the results of its evaluation so far.

    Args:
        model: The target.
        plan: As `make_plan` gave it.
        now: A clock, in seconds.
    """

    def __init__(self, model: LoadedModel, plan: TrainingPlan, now: Callable[[], float] = monotonic) -> None:
        self._model, self._plan, self._now = model, plan, now
        self._record = plan.record
        self._limit = TimeLimit(plan.settings.hours, plan.record.spent_s, now)
        model.hooks.read(plan.reads)

    def run(self) -> Generator[TrainingProgress]:
        """Go on from where the last run ended, to the end. Every event is also a line of `log.jsonl`.

        Raises:
            StorageLockedError: If another process runs the same training.
            StorageFullError: If the disk is full.
            StorageError: If a file cannot be written, or is damaged.
            ModelError: If there is nothing to learn from the model's answers, or learning does not succeed.
            OutOfMemoryError: If the memory was not enough; what was done is kept.
        """
        try:
            yield from self._run()
        except (RdchatError, MemoryError):
            raise
        except Exception as error:
            if not self._plan.resumed:
                raise
            _LOG.exception("A training could not go on")
            raise StorageError(
                f"The training cannot go on from what is kept in {self._plan.folder}: it is damaged.",
                "Delete that folder to begin afresh.",
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
            for progress in stack.enter_context(closing(self._phases())):  # which saves before the lock is given back
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
        with suppress(RdchatError):  # an error that is on its way says more
            self._write_record()

    def _phases(self) -> Generator[TrainingProgress]:
        data, settings, record = self._data_phase(), self._plan.settings, self._record
        data.take(self._plan.shipped_answers(), settings.sequences)
        yield from data.run()
        self._write_record()
        shards = data.data()
        conversations = [item for shard in shards for item in shard]
        key = self._recipe_key(len(shards))
        place = self._plan.folder / f"recipe-{key}"
        kept = place / "drafter"
        if key not in record.trained:
            yield TrainingProgress(Phase.PREPARE, 0.0, words=self._restart_words(place))
            make_folder(place)
            drafter, steps = yield from self._train_phase().run(shards, place)
            write_drafter(kept, drafter, "")
            record.trained[key] = steps
            self._write_record()
        head = HeadModel(self._model, load_drafter(kept, self._model))
        questions, results = self._held_out(conversations), list[Result]()
        acceptance = yield from self._calibrate(head, questions, place)
        yield from self._evaluate(questions[:_EVALUATED], place, results)
        yield TrainingProgress(Phase.WRITE, 0.0)
        written = read_written(kept)
        text = card(self._plan, written.config, self._facts(key, conversations), report(results))
        write_drafter(settings.out, written, text)
        if acceptance is not None:
            write_acceptance(settings.out, acceptance)
        yield TrainingProgress(Phase.DONE, 1.0)

    def _facts(self, key: str, conversations: list[TrainingConversation]) -> dict[str, Any]:
        """Return the facts of this run for the card."""
        steps, all_steps = self._record.trained[key]
        info, recurrent = self._model.info, self._plan.settings.kind is TrainedKind.RECURRENT
        return {
            "steps": steps,
            "all_steps": all_steps,
            "answer_tokens": answer_tokens(conversations),
            "conversations": len(conversations),
            "device": info.device,
            "dtype": info.dtype,
            "version": __version__,
            "licence": (RecurrentObjective if recurrent else SequenceObjective).licence,
        }

    def _train_phase(self) -> TrainPhase:
        return TrainPhase(self._model, self._plan, self._shards, self._limit, self._now)

    def _data_phase(self) -> DataPhase:
        settings, folder = self._plan.settings, self._plan.folder
        maker = DataMaker(
            self._model,
            self._plan.template,
            SeedPromptSource(settings.seed, (*settings.prompts, *settings.asked)).seed_prompt,
            self._shards,
            folder / "wave.safetensors",
            seed=settings.seed,
            sequences=settings.sequences,
            keep_states=self._record.keep_states,
            now=self._now,
        )
        return DataPhase(
            self._shards,
            maker,
            settings.tokens,
            self._limit,
            self._record,
            measure=self._train_phase().cost,
            now=self._now,
        )

    def _restart_words(self, place: Path) -> str:
        """Return a sentence where learning starts again, although the data is there; else nothing."""
        others = [path for path in self._plan.folder.glob("recipe-*/training.safetensors") if path.parent != place]
        return "" if place.exists() or not others else _RESTART

    def _recipe_key(self, shards: int) -> str:
        """Return a name for all that learning depends on, so that nothing is continued by another recipe."""
        settings = self._plan.settings
        facts = [asdict(settings.recipe), settings.vocabulary, settings.size, "rnn", settings.hours, shards]
        if settings.kind is not TrainedKind.RECURRENT:
            facts += [settings.kind, settings.target_layers]
        if settings.start is not None:
            facts.append(hashlib.sha256((settings.start / WEIGHTS).read_bytes()).hexdigest())
        return hashlib.sha256(json.dumps([__version__, *facts]).encode()).hexdigest()[:12]

    def _calibrate(
        self, drafter: HeadModel, prompts: list[Prompt], place: Path
    ) -> Generator[TrainingProgress, None, Acceptance | None]:
        """Calibrate the automatic mode's acceptance estimates on held-out questions."""
        sampling = SamplingParams(temperature=0, max_tokens=_CALIBRATION_TOKENS)
        calibration = AcceptanceCalibration(self._model, drafter)
        pace, tokens = Pace(self._now), 0
        for number, prompt in enumerate(prompts, start=1):
            request = GenerationRequest((ChatMessage(Role.USER, prompt.text),), sampling)
            tokens += calibration.reply(request, place / f"watched-{number}.npz")
            yield TrainingProgress(Phase.WATCH, number / len(prompts), tokens / pace.spent_s)
            if self._limit.left_s < 0:
                break
        return calibration.acceptance

    def _evaluate(self, prompts: list[Prompt], place: Path, results: list[Result]) -> Iterator[TrainingProgress]:
        """Decode held-out questions, as many as there is time for; kept results are not measured again."""
        sampling = SamplingParams(temperature=0, max_tokens=_EVALUATED_TOKENS)
        drafts = [replace(draft, drafter=str(place / "drafter")) for draft in _DRAFTS]
        evaluation = Evaluation(ChatSession(self._model), sampling)
        pace, total, decoded = Pace(self._now), len(prompts) * len(drafts), 0
        facts = {"dtype": self._model.info.dtype, "device": self._model.info.device, "tokens": _EVALUATED_TOKENS}
        with closing(CountsFile(place / "evaluation.jsonl", facts)) as kept:
            for result in evaluation.run(prompts, drafts, kept):
                results.append(result)
                decoded += result[2].decoded
                left = pace.spent_s / len(results) * (total - len(results))
                yield TrainingProgress(
                    Phase.EVALUATE, len(results) / total, decoded / pace.spent_s, left_s=max(left, 0.0)
                )
                if self._limit.left_s < 0 and len(results) % len(drafts) == 0:
                    break

    def _held_out(self, conversations: list[TrainingConversation]) -> list[Prompt]:
        """Return questions of conversations that were not trained on."""
        before, after = len(self._plan.template.before), len(self._plan.template.after)
        held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
        texts = [self._model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
        return [Prompt(text) for text in texts if text][:_CALIBRATION_PROMPTS]


def _check_files(folder: Path) -> None:
    """Refuse a folder with a named pipe or a device in it: opening one may never end."""
    for path in folder.rglob("*"):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise StorageError(f"{path} is no ordinary file.", f"Delete {folder} to begin afresh.")
