"""Runs a training in phases, each of which can be interrupted, and writes the drafter with its card.

A trained drafter is measured by decoding: on held-out questions for the card, and against the drafter used before for
the window.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import batched, product, zip_longest
from pathlib import Path
from time import monotonic

from rdchat import __version__
from rdchat.errors import ModelError, RdchatError, StorageError
from rdchat.files import FileLock, make_folder
from rdchat.inference.api import (
    COMPARED_BEAMS,
    EVERYDAY_PROMPTS,
    ChatMessage,
    ComparedGroup,
    Comparison,
    DraftSettings,
    Dtype,
    GenerationRequest,
    HeadKind,
    Mode,
    OnProgress,
    Phase,
    Prompt,
    Role,
    SamplingParams,
    Statistics,
    TrainingProgress,
    TrainingSettings,
)
from rdchat.inference.benchmark.recording import record
from rdchat.inference.device import device_errors
from rdchat.inference.drafting.checkpoints.checkpoint import read_own_drafter, write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.drafter_search import resolve_drafter, search_drafters
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_files import TargetBinding, folder_label, is_hub_id
from rdchat.inference.session import ChatSession
from rdchat.inference.training.data_maker import SHARDS, DataMaker, ShardFolder, Template, answer_tokens
from rdchat.inference.training.phases import Pace, make_data, take_shipped, train_head
from rdchat.inference.training.samples import Answers
from rdchat.inference.training.seed_prompts import seed_prompt
from rdchat.inference.training.training_plan import TrainingPlan, make_plan
from rdchat.inference.verification import LoadedModel

# Held-out questions decoded at the end.
_EVALUATED = 12
_EVALUATED_TOKENS = 96
_COMPARED_TOKENS = 64
_COMPARED = DraftSettings(
    Mode.DRAFTER, beam_width=COMPARED_BEAMS.width, beam_length=COMPARED_BEAMS.length, lookup_branch=False
)
# The setups of the card: beam width W, beam length L.
_SETUPS = {
    "W1 L5": replace(_COMPARED, beam_width=1),
    "W4 L5": _COMPARED,
    "W4 L5 + lookup": replace(_COMPARED, lookup_branch=True),
}
_LOG = logging.getLogger(__name__)
_RESTART = "Learning starts again, because the settings or the version changed."


def held_out_questions(
    model: LoadedModel, template: Template, conversations: Sequence[TrainingConversation]
) -> list[Prompt]:
    """Return questions of conversations that were not used in training."""
    before = len(template.before)
    after = len(template.after)
    held_out = [item for item in conversations if Answers.concatenate([item]).held_out[0]]
    texts = [model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
    return [Prompt(text) for text in texts if text][:_EVALUATED]


def evaluate(
    model: LoadedModel, prompts: Sequence[Prompt], drafter: Path, now: Callable[[], float]
) -> Generator[TrainingProgress, None, dict[str, Statistics]]:
    """Decode questions with the drafter in a folder; return the sums by setup, such as `W4 L5`."""
    pace = Pace(now)
    decoded = 0
    replies = list[Statistics]()
    drafts = [replace(draft, drafter=str(drafter)) for draft in _SETUPS.values()]
    for fraction, reply in _replies(model, prompts, drafts, _EVALUATED_TOKENS):
        replies.append(reply)
        decoded += reply.generated_tokens - 1
        left_s = pace.spent_s * (1 / fraction - 1)
        yield TrainingProgress(Phase.EVALUATE, fraction, decoded / pace.spent_s, left_s=max(left_s, 0.0))
    # The replies of a setup follow one another, one for each prompt.
    count = len(prompts)
    return {name: pooled(replies[number * count : (number + 1) * count]) for number, name in enumerate(_SETUPS)}


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
    drafts = [replace(_COMPARED, drafter=str(path)) for path in (new, folder) if path]
    replies = list[Statistics]()
    for fraction, reply in _replies(model, EVERYDAY_PROMPTS, drafts, _COMPARED_TOKENS):
        replies.append(reply)
        show(fraction)
    by_drafter = batched(replies, len(EVERYDAY_PROMPTS))
    # A column for the new drafter, and one for the old one, if there is one.
    columns = [[each.tokens_per_target_call for each in (*own, pooled(own))] for own in by_drafter]
    # Each has one number for each prompt and one for all. Each prompt is a group of its own.
    names = (*(prompt.group for prompt in EVERYDAY_PROMPTS), "all")
    return Comparison(tuple(map(ComparedGroup, names, *columns)), name, problem)


def pooled(replies: Sequence[Statistics]) -> Statistics:
    """Return the sums of the counts from which tokens per target call and acceptance follow.

    The first token of a reply does not count, as in `Statistics.tokens_per_target_call`; the sum has one such token.
    """

    def lengths(name: str) -> tuple[int, ...]:
        return tuple(map(sum, zip_longest(*(getattr(reply, name) for reply in replies), fillvalue=0)))

    return Statistics(
        generated_tokens=1 + sum(max(reply.generated_tokens - 1, 0) for reply in replies),
        target_calls=sum(reply.target_calls for reply in replies),
        drafted_lengths=lengths("drafted_lengths"),
        accepted_lengths=lengths("accepted_lengths"),
    )


def _replies(
    model: LoadedModel, prompts: Sequence[Prompt], drafts: Sequence[DraftSettings], max_tokens: int
) -> Iterator[tuple[float, Statistics]]:
    """Decode greedy replies to all prompts with each draft, starting with empty KV caches; yield the fraction done too.

    Raises:
        ModelError: If the target cannot use a draft.
    """
    session = ChatSession(model)
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    for done, (draft, prompt) in enumerate(product(drafts, prompts), start=1):
        request = GenerationRequest((ChatMessage(Role.USER, prompt.text),), sampling, 0, draft=draft)
        run = record(session, request, lambda: False)
        assert run is not None, "it is never cancelled"
        if run.mode_reason:
            raise ModelError(run.mode_reason)
        yield done / len(prompts) / len(drafts), run.statistics


def _old(model: LoadedModel, named: str | None) -> tuple[str, Path | None, str]:
    """Return the old drafter's name and folder, and why it cannot draft.

    There are three cases: a name, a folder and no reason; a reason, the name that was given, and no folder, where
    it cannot be used; nothing at all where no drafter was named and none is installed for the model.
    """
    try:
        binding = TargetBinding.for_model(model.info)
        folder = resolve_drafter(named) if named is not None else search_drafters(binding.hash).folder
        if folder is None:
            return "", None, ""
        name = named if named is not None and is_hub_id(named) else folder_label(folder)
        load_drafter(folder, model)
    except RdchatError as error:
        return Path(named or "").name, None, error.message
    return name, folder, ""


class DrafterTraining:
    """Trains one drafter.

    Its folder holds the data, and one folder for each recipe, amount of data and version: the checkpoint, the trained
    drafter, and the results of its evaluation so far.

    Args:
        model: The target.
        plan: From `make_plan`.
        now: A clock, in seconds.

    Attributes:
        model: The target.
        plan: The plan.
    """

    def __init__(self, model: LoadedModel, plan: TrainingPlan, now: Callable[[], float] = monotonic) -> None:
        self.model = model
        self.plan = plan
        self._now = now
        self._record = plan.record
        model.hooks.record_states(plan.reads)

    @classmethod
    def load_planned(
        cls, model: str | None, dtype: Dtype, settings: TrainingSettings, on_progress: OnProgress, *, resume: bool
    ) -> "DrafterTraining":
        """Load a model, and return a training for it that can begin; raises as `load_model` and `make_plan` do.

        Args:
            model: See `load_model`.
            dtype: Precision of its weights.
            settings: The given settings.
            on_progress: Called while the model is loaded.
            resume: Whether an interrupted training may be continued.
        """
        loaded = load_model(model, dtype, on_progress, anyway=settings.anyway)
        return cls(loaded, make_plan(loaded, settings, resume))

    def train(self) -> Generator[TrainingProgress]:
        """Continue from the end of the last run to the end of the training.

        Raises:
            StorageLockedError: If another process runs the same training.
            StorageFullError: If the disk is full.
            StorageError: If a file cannot be written, or is damaged.
            ModelError: If there is nothing to learn from the model's answers, or learning does not succeed.
            OutOfMemoryError: If there was not enough memory; the work done is stored.
        """
        folder = self.plan.folder
        make_folder(folder)
        lock = FileLock(folder / "lock", "the training data", "Wait until it is done, or stop it.")
        try:
            # The phases save when they are closed: before the lock is released.
            with lock, device_errors("for this training"), closing(self._phases()) as phases:
                self._record.write_record(folder)
                yield from phases
        except (RdchatError, MemoryError):
            raise
        except Exception as error:
            # Only a training that was resumed reads old data, whose damage may show as any error. Else it is a bug.
            if not self.plan.resumed:
                raise
            _LOG.exception("A training could not continue")
            raise StorageError(
                f"The training cannot continue: its data in {folder} is damaged.", "Delete that folder to start again."
            ) from error

    def _phases(self) -> Generator[TrainingProgress]:
        """Make the data, train the head unless that is done, evaluate it, and write it to the output folder."""
        settings = self.plan.settings
        record = self._record
        template = record.template(self.model)
        stored = ShardFolder(self.plan.folder / SHARDS, self.model.info.vocabulary_size)
        take_shipped(stored, self.plan)
        maker = DataMaker(
            self.model,
            template,
            partial(seed_prompt, settings.seed, extra=(*settings.prompts, *settings.chat_questions)),
            stored,
            seed=settings.seed,
            sequences=settings.sequences,
        )
        shards = yield from make_data(maker, settings.tokens, self._now)
        conversations = [item for shard in shards for item in shard]
        key = self._recipe_key(len(shards))
        run_folder = self.plan.folder / f"recipe-{key}"
        drafter = run_folder / "drafter"
        if key not in record.trained:
            learnt_before = not run_folder.exists() and any(self.plan.folder.glob("recipe-*/training.safetensors"))
            yield TrainingProgress(Phase.PREPARE, 0.0, text=_RESTART if learnt_before else "")
            make_folder(run_folder)
            trained, steps = yield from train_head(self.model, self.plan, conversations, run_folder, self._now)
            write_drafter(drafter, trained, "")
            record.trained[key] = steps
            record.write_record(self.plan.folder)
        questions = held_out_questions(self.model, template, conversations)
        evaluation = yield from evaluate(self.model, questions, drafter, self._now)
        yield TrainingProgress(Phase.WRITE, 0.0)
        written = read_own_drafter(drafter)
        text = self._card(record.trained[key], conversations, len(questions), evaluation)
        write_drafter(settings.out, written, text)
        yield TrainingProgress(Phase.DONE, 1.0)

    def _recipe_key(self, shards: int) -> str:
        """Return a name for all that learning depends on, so that no other recipe continues it."""
        settings = self.plan.settings
        facts = [__version__, asdict(settings.recipe), self.plan.reads.layers, shards]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    def _card(
        self,
        steps: Sequence[int],
        conversations: Sequence[TrainingConversation],
        prompts: int,
        evaluation: Mapping[str, Statistics],
    ) -> str:
        """Return the card. It contains no text of any person.

        Args:
            steps: Steps done, and steps planned.
            conversations: The data.
            prompts: Number of questions decoded to evaluate the drafter.
            evaluation: Their counts by setup; see `evaluate`.
        """
        plan = self.plan
        model = self.model.info
        settings = plan.settings
        target = plan.binding
        fields = {
            "kind": HeadKind.RECURRENT.value,
            "target": target.name,
            "target architecture": target.architecture,
            "target hash": f"`{target.hash}`",
            "target precision": model.dtype,
            "answers": f"{len(conversations):,}",
            "answer tokens": f"{answer_tokens(conversations):,}",
            "own questions from a file": f"{len(settings.prompts):,}",
            "own questions from chats": f"{len(settings.chat_questions):,}",
            "target layers read": ", ".join(map(str, plan.reads.layers)),
            "epochs": settings.recipe.epochs,
            "learning rate": settings.recipe.learning_rate,
            "steps": f"{steps[0]:,} of {steps[1]:,}",
            "seed": settings.seed,
            "made with": f"rdchat {__version__} on {model.device}",
        }
        return f"""# {HeadKind.RECURRENT.label} drafter for {target.name}

| field | value |
|---|---|
{"\n".join(f"| {name} | {value} |" for name, value in fields.items())}

The target wrote the answers itself. One answer of every 15 was not trained on.

## Tokens per step
Decoded greedily on questions that were not trained on, with the share of drafted tokens that was accepted at each
position:

| setup | prompts | tokens per step | accepted by position |
|---|---|---|---|
{_figures(prompts, evaluation)}

## Licence
The head holds no weights of the target. It was trained on the target's own answers: use it under the target's licence.
"""


def _figures(prompts: int, evaluation: Mapping[str, Statistics]) -> str:
    """Return the rows of the card's table of setups."""
    lines = []
    for setup, counts in evaluation.items():
        if counts.tokens_per_target_call is not None:
            shares = " ".join(f"{share:.0%}" for share in counts.acceptance_by_position)
            lines.append(f"| {setup} | {prompts} | {counts.tokens_per_target_call:.2f} | {shares} |")
    return "\n".join(lines) or "| none was measured: there was too little data | | | |"
