"""Runs a training in phases, from the first question to the drafter's folder, and measures the drafter by decoding.

Each phase can be interrupted.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic

from rdchat import __version__
from rdchat.errors import RdchatError, StorageError
from rdchat.files.atomic_file import make_folder
from rdchat.files.file_lock import FileLock
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams
from rdchat.inference.api.training import (
    COMPARED_BEAMS,
    ComparedGroup,
    Comparison,
    Phase,
    TrainingProgress,
)
from rdchat.inference.benchmark.draft_counts import Result, report
from rdchat.inference.benchmark.recording import measure_drafts
from rdchat.inference.drafting.checkpoints.drafter_files import WEIGHTS, read_own_drafter, write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter, search_drafters
from rdchat.inference.models.model_files import TargetBinding, is_hub_id, shown_name
from rdchat.inference.session import ChatSession
from rdchat.inference.target.memory_errors import device_errors
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.data_maker import DataMaker, Template
from rdchat.inference.training.data.seed_prompts import SeedPromptSource
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation
from rdchat.inference.training.heads.samples import Answers
from rdchat.inference.training.run.card import card
from rdchat.inference.training.run.phases import DataPhase, Pace, TrainPhase
from rdchat.inference.training.run.training_plan import TrainingPlan

_EVALUATED = 12  # held-out questions decoded at the end
_EVALUATED_TOKENS = 96
_COMPARED_TOKENS = 64
_DRAFTS = tuple(  # the second is used for the comparison
    DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=COMPARED_BEAMS.length, lookup_branch=branch)
    for width, branch in ((1, False), (COMPARED_BEAMS.width, False), (COMPARED_BEAMS.width, True))
)


def held_out_questions(
    model: LoadedModel, template: Template, conversations: Sequence[TrainingConversation]
) -> list[Prompt]:
    """Return questions of conversations that were not used in training."""
    before, after = len(template.before), len(template.after)
    held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
    texts = [model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
    return [Prompt(text) for text in texts if text][:_EVALUATED]


def evaluate(
    model: LoadedModel, prompts: Sequence[Prompt], drafter: Path, now: Callable[[], float]
) -> Generator[TrainingProgress, None, list[Result]]:
    """Decode held-out questions with the drafter in a folder."""
    results = list[Result]()
    drafts = [replace(draft, drafter=str(drafter)) for draft in _DRAFTS]
    pace, total, decoded = Pace(now), len(prompts) * len(drafts), 0
    for result in measure_drafts(ChatSession(model), prompts, drafts, _greedy(_EVALUATED_TOKENS)):
        results.append(result)
        decoded += result[2].decoded
        left = pace.spent_s / len(results) * (total - len(results))
        yield TrainingProgress(Phase.EVALUATE, len(results) / total, decoded / pace.spent_s, left_s=max(left, 0.0))
    return results


def compare_drafters(model: LoadedModel, new: Path, old: str | None, show: Callable[[float], None]) -> Comparison:
    """Decode everyday questions that neither drafter was trained on, with a new drafter and the old one.

    Args:
        model: The target.
        new: The trained drafter's folder.
        old: The drafter used now, a folder or hub id; None for the one made for the model.
        show: Called with the fraction done; an exception from it ends the comparison.

    Raises:
        RdchatError: If the new one cannot be loaded.
    """
    name, folder, problem = _old(model, old)
    folders = [path for path in (new, folder) if path]
    figures: list[dict[str, float | None]] = []  # by group, for each drafter
    for drafter in folders:
        draft, results = replace(_DRAFTS[1], drafter=str(drafter)), list[Result]()
        for result in measure_drafts(ChatSession(model), EVERYDAY_PROMPTS, [draft], _greedy(_COMPARED_TOKENS)):
            results.append(result)
            show((len(figures) + len(results) / len(EVERYDAY_PROMPTS)) / len(folders))
        figures.append({row["group"]: row["tokens_per_target_call"] for row in report(results)})
    before = figures[1] if len(figures) > 1 else {}
    groups = tuple(ComparedGroup(group, figure, before.get(group)) for group, figure in figures[0].items())
    return Comparison(groups, name, problem)


def _old(model: LoadedModel, named: str | None) -> tuple[str, Path | None, str]:
    """Return the old drafter's name and folder, and why it cannot draft; an empty name without one."""
    try:
        binding = TargetBinding.of(model.info)
        folder = resolve_drafter(named) if named is not None else search_drafters(binding.hash).folder
        if folder is None:
            return "", None, ""
        name = named if named is not None and is_hub_id(named) else shown_name(folder)
        load_drafter(folder, model)
    except RdchatError as error:
        return Path(named or "").name, None, error.message
    return name, folder, ""


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens)


_LOG = logging.getLogger(__name__)
_RESTART = "Learning starts again, because the settings or the version changed."


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
        model.hooks.read(plan.reads)

    def run(self) -> Generator[TrainingProgress]:
        """Continue from the end of the last run to the end of the training.

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
            self._record.write(folder)
            self._shards = ShardFolder(folder / "shards", self._model.info.vocabulary_size)
            yield from stack.enter_context(closing(self._phases()))  # it saves before the lock is released

    def _phases(self) -> Generator[TrainingProgress]:
        settings, record = self._plan.settings, self._record
        maker = DataMaker(
            self._model,
            record.template(self._model),
            SeedPromptSource(settings.seed, (*settings.prompts, *settings.asked)).seed_prompt,
            self._shards,
            seed=settings.seed,
            sequences=settings.sequences,
            keep_states=record.keep_states,
        )
        shards = yield from DataPhase(self._plan, maker, self._now).run()
        conversations = [item for shard in shards for item in shard]
        key = self._recipe_key(len(shards))
        run_folder = self._plan.folder / f"recipe-{key}"
        drafter = run_folder / "drafter"
        if key not in record.trained:
            yield TrainingProgress(Phase.PREPARE, 0.0, words=self._restart_text(run_folder))
            make_folder(run_folder)
            trained, steps = yield from TrainPhase(self._model, self._plan, self._shards, self._now).run(
                shards, run_folder
            )
            write_drafter(drafter, trained, "")
            record.trained[key] = steps
            record.write(self._plan.folder)
        questions = held_out_questions(self._model, record.template(self._model), conversations)
        results = yield from evaluate(self._model, questions, drafter, self._now)
        yield TrainingProgress(Phase.WRITE, 0.0)
        written = read_own_drafter(drafter)
        text = card(
            self._plan,
            self._model.info,
            steps=record.trained[key],
            conversations=conversations,
            rows=report(results),
        )
        write_drafter(settings.out, written, text)
        yield TrainingProgress(Phase.DONE, 1.0)

    def _restart_text(self, run_folder: Path) -> str:
        """Return a sentence if learning starts again with existing data; else an empty string."""
        checkpoints = [path.parent for path in self._plan.folder.glob("recipe-*/training.safetensors")]
        return _RESTART if checkpoints and not run_folder.exists() else ""

    def _recipe_key(self, shards: int) -> str:
        """Return a name for all that learning depends on, so that no other recipe continues it."""
        settings = self._plan.settings
        facts = [asdict(settings.recipe), settings.vocabulary, shards]
        if settings.kind is not HeadKind.RECURRENT:
            facts += [settings.kind, settings.target_layers]
        if settings.start is not None:
            facts.append(hashlib.sha256((settings.start / WEIGHTS).read_bytes()).hexdigest())
        return hashlib.sha256(json.dumps([__version__, *facts]).encode()).hexdigest()[:12]


def _check_files(folder: Path) -> None:
    """Refuse a folder with a named pipe or a device in it, since opening one may block for ever."""
    for path in folder.rglob("*"):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise StorageError(f"{path} is not an ordinary file.", f"Delete {folder} to start again.")
