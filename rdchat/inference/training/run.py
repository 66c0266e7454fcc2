"""A training from the first question to the drafter's folder, in phases; each can be interrupted at any moment."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from time import monotonic

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_map

from rdchat import __version__
from rdchat.inference.drafter_folder import StoredDrafter, save_drafter
from rdchat.inference.prompt_files import Prompt
from rdchat.inference.recurrent_head import RecurrentHead
from rdchat.inference.requests import SamplingParams
from rdchat.inference.target import LoadedModel
from rdchat.inference.target_embeddings import TargetEmbeddings
from rdchat.inference.training.card import card
from rdchat.inference.training.data import DataMaker, answer_tokens, chat_template
from rdchat.inference.training.evaluate import Evaluation, Setup, report
from rdchat.inference.training.hidden_states import answer_states
from rdchat.inference.training.plan import TrainingPlan
from rdchat.inference.training.preparation import Prepared, prepare
from rdchat.inference.training.prompts import PromptSource
from rdchat.inference.training.samples import Answers
from rdchat.inference.training.shards import Conversation, ShardFolder
from rdchat.inference.training.sharpen import fit_sharpen
from rdchat.inference.training.simulate import Simulation, simulate
from rdchat.inference.training.time_limit import Costs, TimeLimit, measured_call_s, measured_step_s, write_json
from rdchat.inference.training.trainer import Trainer
from rdchat.inference.training.whitening import fold

_SAVE_EVERY = 45.0  # seconds of training that an interruption may cost
_SIMULATE_EVERY = 10  # reports between two looks at held-out answers
_EVALUATION_SHARE = 0.5  # of the most that the evaluation can take, kept free for it where time runs short
_EVALUATED = 12  # held-out questions that are decoded at the end
_EVALUATED_TOKENS = 96
_SETUPS = (Setup(1, 5), Setup(4, 5), Setup(4, 5, lookup_branch=True))


class Phase(StrEnum):
    """What a training is doing."""

    DATA = "data"
    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    WRITE = "write"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Where a training stands.

    Attributes:
        phase: What it is doing.
        fraction: Of the phase, from 0 to 1.
        tokens_per_second: Answer tokens made, or samples trained on, since the phase was begun or taken up; None where
            it does not say.
        loss: In nats, of the last steps; None outside of training.
        accuracy: Share of right tokens at each draft position of held-out answers, given that all before were right;
            empty where it was not looked at.
        left_s: Seconds until the phase ends, at this speed; None where it cannot be told.
    """

    phase: Phase
    fraction: float
    tokens_per_second: float | None = None
    loss: float | None = None
    accuracy: tuple[float, ...] = ()
    left_s: float | None = None


class DrafterTraining:
    """Trains one drafter.

    Args:
        model: The target.
        plan: What `make_plan` gave.
        now: A clock, in seconds.
    """

    def __init__(self, model: LoadedModel, plan: TrainingPlan, now: Callable[[], float] = monotonic) -> None:
        self._model = model
        self._plan = plan
        self._shards = ShardFolder(plan.folder / "shards", model.info.vocabulary_size)
        self._checkpoint = plan.folder / "training.safetensors"
        self._finished = plan.folder / "data.json"
        self._now = now
        self._limit = TimeLimit(plan.settings.hours, plan.folder / "time.json", now)
        model.seams.read_layers(plan.settings.target_layers)

    def run(self) -> Iterator[TrainingProgress]:
        """Go on from where the last run ended, to the end. Every event is also a line of `log.jsonl`."""
        with (self._plan.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            for progress in self._phases():
                log.write(json.dumps(asdict(progress)) + "\n")
                log.flush()
                self._limit.save()
                yield progress

    def _phases(self) -> Iterator[TrainingProgress]:
        yield from self._make_data()
        yield TrainingProgress(Phase.PREPARE, 0.0)
        shards = [self._shards.read(number) for number in range(len(self._shards))]
        prepared = self._prepare(shards)
        trainer = self._trainer(prepared)
        yield from self._train(trainer, prepared)
        head = _in_half_precision(fold(trainer.head, prepared.coordinates))
        head.config = replace(head.config, sharpen=fit_sharpen(trainer.head, prepared))
        drafter = StoredDrafter(head, prepared.vocabulary, self._plan.binding)
        conversations = [item for shard in shards for item in shard]
        results = []
        prompts = self._held_out(conversations)
        for result in self._evaluation(drafter).run(prompts, _SETUPS):
            results.append(result)
            yield TrainingProgress(Phase.EVALUATE, len(results) / (len(prompts) * len(_SETUPS)))
            if self._limit.left_s < 0 and len(results) % len(_SETUPS) == 0:
                break
        yield TrainingProgress(Phase.WRITE, 0.0)
        facts = {
            "answer_tokens": answer_tokens(conversations),
            "conversations": len(conversations),
            "device": self._model.info.device,
            "dtype": self._model.info.dtype,
            "version": __version__,
        }
        text = card(self._plan, head.config, facts, report(results))
        save_drafter(self._plan.settings.out, drafter, text)
        yield TrainingProgress(Phase.DONE, 1.0)

    def _make_data(self) -> Iterator[TrainingProgress]:
        if self._finished.exists():  # with --hours the clock must not decide a second time
            return
        settings = self._plan.settings
        opening = PromptSource(settings.seed, settings.prompts).opening
        maker = DataMaker(
            self._model,
            opening,
            self._shards,
            seed=settings.seed,
            lanes=settings.lanes,
            keep_states=self._plan.keep_states,
        )
        total = maker.resume()
        began, before = self._now(), total
        costs = self._costs() if self._limit and total else None
        left = math.inf
        with closing(maker.waves()) as waves:
            while total < settings.tokens and left > 0:
                wave_began = self._now()
                total += answer_tokens(next(waves))
                spent, wave_s = self._now() - began, self._now() - wave_began
                speed = (total - before) / spent
                left = (settings.tokens - total) / speed
                if self._limit:
                    costs = costs or self._costs()
                    # time for another wave of the same size, and for all that follows it
                    after = costs.after_data(total + round(speed * wave_s))
                    left = min(left, self._limit.left_s - after - wave_s)
                left = max(left, 0)
                yield TrainingProgress(Phase.DATA, spent / (spent + left), speed, left_s=left)
        write_json(self._finished, {"answer_tokens": total})

    def _costs(self) -> Costs:
        """Measure on the first shard what training on the data will take."""
        recipe, began = self._plan.settings.recipe, self._now()
        shard = self._shards.read(0)
        prepared = self._prepare([shard])
        prepared_s = self._now() - began
        step_s = measured_step_s(self._fresh_trainer(prepared), self._now)
        readings = 1 if self._plan.keep_states else 1 + recipe.epochs
        token_s = readings * prepared_s / answer_tokens(shard) + recipe.epochs * step_s / recipe.batch
        return Costs(token_s, self._evaluation_s())

    def _evaluation_s(self) -> float:
        """Return what the evaluation takes at most: one call of the target for each token."""
        return _EVALUATED * len(_SETUPS) * _EVALUATED_TOKENS * measured_call_s(self._model, self._now)

    def _prepare(self, shards: list[list[Conversation]]) -> Prepared:
        def read_states(number: int) -> npt.NDArray[np.float16]:
            kept = self._shards.states(number)
            return answer_states(self._model, shards[number]) if kept is None else kept

        settings, size = self._plan.settings, self._model.info.vocabulary_size
        return prepare(
            TargetEmbeddings(self._model.network, size),
            size,
            shards,
            read_states,
            candidates=settings.vocabulary,
            steps=settings.recipe.steps,
            window_tokens=self._plan.window_tokens,
        )

    def _fresh_trainer(self, prepared: Prepared) -> Trainer:
        recipe = self._plan.settings.recipe
        mx.random.seed(recipe.seed)
        width = prepared.coordinates.rows.shape[1]
        return Trainer(RecurrentHead(self._plan.head_config(width, len(prepared.vocabulary))), recipe, prepared)

    def _trainer(self, prepared: Prepared) -> Trainer:
        trainer = self._fresh_trainer(prepared)
        if self._checkpoint.exists():
            trainer.restore(self._checkpoint)
        return trainer

    def _train(self, trainer: Trainer, prepared: Prepared) -> Iterator[TrainingProgress]:
        began, before, saved = self._now(), trainer.step, self._now()
        reserve = _EVALUATION_SHARE * self._evaluation_s() if self._limit else 0.0
        for number, step in enumerate(trainer.run()):
            speed = (step.step - before) / (self._now() - began)
            out_of_time = self._limit.left_s < reserve
            simulation = Simulation((), 0.0)
            if number % _SIMULATE_EVERY == _SIMULATE_EVERY - 1 or step.step == step.total:
                simulation = simulate(trainer.head, prepared)
            yield TrainingProgress(
                Phase.TRAIN,
                step.step / step.total,
                speed * self._plan.settings.recipe.batch,
                step.loss,
                simulation.accuracy,
                (step.total - step.step) / speed,
            )
            if self._now() - saved > _SAVE_EVERY or step.step == step.total or out_of_time:
                trainer.save(self._checkpoint)
                saved = self._now()
            if out_of_time:  # slower than it was measured to be
                return

    def _evaluation(self, drafter: StoredDrafter) -> Evaluation:
        return Evaluation(self._model, drafter, SamplingParams(temperature=0, max_tokens=_EVALUATED_TOKENS))

    def _held_out(self, conversations: list[Conversation]) -> list[Prompt]:
        """Return questions of conversations that were not trained on."""
        template = chat_template(self._model)
        before, after = len(template.before), len(template.after)
        held_out = [item for item in conversations if Answers.of([item]).held_out[0]]
        texts = [self._model.decode(item.tokens[before : item.answer_start - after]).strip() for item in held_out]
        return [Prompt(text) for text in texts if text][:_EVALUATED]


def _in_half_precision(head: RecurrentHead) -> RecurrentHead:
    """Store 2 bytes a weight: what a draft loses by it cannot be measured."""
    head.update(tree_map(lambda array: array.astype(mx.float16), head.parameters()))
    mx.eval(head.parameters())
    return head
