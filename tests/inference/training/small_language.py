"""A small qwen2 that has learnt a small language, and the training of a drafter for it; a process of its own too.

A question is `user: ` and a few words; an answer is sentences such as `the red fox sees a small cat.`
"""

import random
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx_lm.models import qwen2

from rdchat.inference.api import Phase, Recipe, TrainingSettings
from rdchat.inference.training import phases
from rdchat.inference.training.phases import Pace
from rdchat.inference.training.training_plan import make_plan
from rdchat.inference.training.training_run import DrafterTraining
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, END, LenientTokenizer, lenient, loaded

_ADJECTIVES = ("red", "small", "old", "quick", "happy")
_NOUNS = ("fox", "cat", "house", "river", "child", "garden")
_VERBS = ("sees", "finds", "likes", "follows")
_LENGTH = 96
_STEPS = 100


def sentence(draw: random.Random) -> str:
    first, second = draw.sample(_NOUNS, 2)
    return f"the {draw.choice(_ADJECTIVES)} {first} {draw.choice(_VERBS)} a {draw.choice(_ADJECTIVES)} {second}."


def conversation(draw: random.Random) -> str:
    answer = " ".join(sentence(draw) for _ in range(draw.randint(1, 3)))
    return f"user: say {draw.choice(_NOUNS)}\nassistant: {answer}\0"


def small_network() -> qwen2.Model:
    return qwen2.Model(
        qwen2.ModelArgs(
            model_type="qwen2",
            hidden_size=48,
            num_hidden_layers=2,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=len(ALPHABET),
            tie_word_embeddings=True,
        )
    )


def fitted_model(weights: Path | None = None) -> LoadedModel:
    """Return the model, fitted in a few seconds or with the weights of an earlier fit."""
    mx.random.seed(11)
    network = small_network()
    if weights is None:
        _fit(network)
    else:
        network.load_weights(str(weights))
        network.eval()
    return small_model(network)


def small_model(network: nn.Module) -> LoadedModel:
    """Return a small network as it is loaded."""
    model = loaded(network)
    return lenient(replace(model, info=replace(model.info, architecture="qwen2")))


def _fit(network: nn.Module) -> None:
    draw = random.Random(12)
    tokenizer = LenientTokenizer()
    optimizer = optim.AdamW(3e-3)

    def loss(network: nn.Module, tokens: mx.array) -> mx.array:
        return nn.losses.cross_entropy(network(tokens[:, :-1]), tokens[:, 1:], reduction="mean")

    state = [network.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def update(tokens: mx.array) -> None:
        optimizer.update(network, nn.value_and_grad(network, loss)(network, tokens)[1])

    for _ in range(_STEPS):
        rows = [tokenizer.encode("".join(conversation(draw) for _ in range(4)))[:_LENGTH] for _ in range(16)]
        update(mx.array([row + [END] * (_LENGTH - len(row)) for row in rows]))
        mx.eval(state)
    network.eval()


def training(model: LoadedModel, out: Path, resume: bool) -> DrafterTraining:
    recipe = Recipe(epochs=6, batch=64, learning_rate=4e-3, warm_up=20, vocabulary=32, seed=1)
    settings = TrainingSettings(out, tokens=6000, seed=1, sequences=16, recipe=recipe)
    return DrafterTraining(model, make_plan(model, settings, resume))


def main() -> None:
    """Train into the folder that the command line names, with the model whose weights it names behind that.

    What is there is continued; each event is a line. The third argument is the phase to be killed in: it waits for its
    end where that phase is over, and before it writes, which takes less time than a kill.
    """
    # a kill is to meet what was saved just before, in a training that is over in seconds
    phases._SAVE_EVERY = 0.1
    Pace.EVERY = 0.0
    order = list(Phase)
    last = order.index(Phase(sys.argv[3]))
    for progress in training(fitted_model(Path(sys.argv[2])), Path(sys.argv[1]), True).train():
        sys.stdout.write(f"{progress.phase} {progress.fraction}\n")
        sys.stdout.flush()
        if order.index(progress.phase) > last or progress.phase == sys.argv[3] == Phase.WRITE:
            signal.pause()
