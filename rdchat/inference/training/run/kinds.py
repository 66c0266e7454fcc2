"""The training of each kind of head, as a plan asks for it."""

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import ShardFolder
from rdchat.inference.training.head.recurrent_training import RecurrentTraining
from rdchat.inference.training.head.trainer import Recipe
from rdchat.inference.training.head_training import HeadTraining
from rdchat.inference.training.run.training_plan import TrainingPlan
from rdchat.inference.training.sequence_heads.sequence_training import SequenceTraining


def training_of(model: LoadedModel, plan: TrainingPlan, shards: ShardFolder) -> HeadTraining:
    """Return what a plan's training needs to know of its kind.

    Args:
        model: The target.
        plan: Of the training.
        shards: Its data, which may have hidden states beside it.
    """
    settings, recipe, window = plan.settings, plan.settings.recipe, plan.budget.window_tokens
    if settings.kind is TrainedKind.RECURRENT:
        assert isinstance(recipe, Recipe)
        return RecurrentTraining(
            model,
            plan.head_config(model),
            recipe,
            plan.binding,
            shards,
            candidates=settings.vocabulary,
            window_tokens=window,
            keep_states=plan.budget.keep_states,
            start=plan.start,
        )
    assert not isinstance(recipe, Recipe)
    return SequenceTraining(
        settings.kind,
        model,
        plan.reads,
        recipe,
        plan.binding,
        candidates=settings.vocabulary,
        window_tokens=window,
    )
