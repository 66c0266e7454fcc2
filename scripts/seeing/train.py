"""Trains the tower of the demonstration that sees onto the frozen default model, on the CPU, from a fixed seed.

    PYTHONPATH=. python -m scripts.seeing.train OUT

The text model does not run. Text alone showed what it copies nearly always when asked to describe a picture: `Repeat: `
with the sentence six times. So the tower learns to write the rows of that text. (400 steps through the model taught the
form of the sentence, nothing of the picture.) OUT/tower.safetensors is what `make_folder` takes. A run that was cut
off goes on.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

from rdchat.paths import default_model_dir
from scripts.seeing.drawings import COLOURS, RELATIONS, SHAPES, drawing, sentence
from scripts.seeing.tower import ROWS, Tower, checkpoint, normal

SEED = 7
STEPS = 3000
BATCH = 32
RATE = 1e-3
BEGIN = "Repeat: "
COPIES = 6
COPY_LENGTH = 10
HELD_OUT = 1_000_000
"""No batch for training has this number."""


class Text:
    """The text whose rows the tower writes.

    Attributes:
        tokens: All different tokens of it.
        table: Their rows in the text model, (tokens, width).
        kinds: For each row a number, the same for the rows of one place in all copies.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        every = [sentence((c, s), r, (c, s)) for c in COLOURS for s in SHAPES for r in RELATIONS]
        self.tokens = sorted({token for each in every for token in self._repeated(each)})
        network, _ = load_model(folder, lazy=True)
        self.table = network.model.embed_tokens(mx.array(self.tokens)).astype(mx.float32)
        mx.eval(self.table)
        begin = len(self._encode(BEGIN))
        inside = range(begin, begin + COPIES * COPY_LENGTH)
        self.kinds = [begin + (row - begin) % COPY_LENGTH if row in inside else row for row in range(ROWS)]

    def places(self, captions: Sequence[str]) -> mx.array:
        """Return the indices in `tokens` of the rows of captions, (captions, ROWS)."""
        return mx.array([[self.tokens.index(token) for token in self._repeated(each)] for each in captions])

    def loss(self, rows: mx.array, places: mx.array) -> mx.array:
        """Return how far rows (captions, ROWS, width) are from those of the text: by the nearest, and by distance."""
        size = mx.mean(mx.square(self.table))
        logits = rows @ self.table.T * (20 / (size * self.table.shape[1]))
        distance = mx.mean(mx.square(rows - self.table[places])) / size
        by_word: mx.array = nn.losses.cross_entropy(logits, places, reduction="mean")
        return by_word + distance

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _repeated(self, caption: str) -> list[int]:
        (line_end,) = self._encode("\n")
        once = self._encode(caption)
        text = self._encode(BEGIN) + COPIES * (once + [line_end] * (COPY_LENGTH - len(once)))
        return text + [line_end] * (ROWS - len(text))


def drawn(number: int, count: int) -> tuple[mx.array, list[str]]:
    """Return pixels and sentences of a batch of drawings."""
    random = np.random.default_rng([SEED, number])
    drawings, captions = zip(*(drawing(random) for _ in range(count)), strict=True)
    return normal(list(drawings)), list(captions)


def main() -> None:
    """Train a tower; go on where an earlier run ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    state = out / "state.safetensors"
    done = 0
    began = time.monotonic()
    text = Text(default_model_dir())
    mx.random.seed(SEED)
    tower = Tower(text.table.shape[1], text.kinds)
    tower.projection.weight *= mx.sqrt(mx.var(text.table))
    warm = STEPS // 12
    falling = optim.cosine_decay(RATE, STEPS - warm)
    optimizer = optim.AdamW(optim.join_schedules([optim.linear_schedule(0, RATE, warm), falling], [warm]))
    optimizer.init(tower.trainable_parameters())
    if state.exists():
        arrays, facts = cast(tuple[dict[str, mx.array], dict[str, str]], mx.load(str(state), return_metadata=True))
        both: dict[str, Any] = tree_unflatten(list(arrays.items()))
        tower.update(both["tower"])
        optimizer.state = both["optimizer"]
        done = int(facts["done"])
    pixels, captions = drawn(HELD_OUT, 200)
    wanted = text.places(captions)
    losses = list[float]()
    step_of = nn.value_and_grad(tower, lambda pixels, places: text.loss(tower(pixels), places))
    for step in range(done + 1, STEPS + 1):
        images, sentences = drawn(step, BATCH)
        value, change = step_of(images, text.places(sentences))
        optimizer.update(tower, optim.clip_grad_norm(change, 1.0)[0])
        mx.eval(tower.parameters(), optimizer.state, value)
        losses.append(value.item())
        if step % 100 == 0 or step == STEPS:
            right = ((tower(pixels) @ text.table.T).argmax(-1) == wanted).all(1)
            shown = f"loss {np.mean(losses[-100:]):.4f}, {mx.sum(right).item()} of 200 held-out texts are right"
            print(f"step {step}: {shown}, {time.monotonic() - began:.0f} s", flush=True)
            both = {"tower": tower.parameters(), "optimizer": optimizer.state}
            mx.save_safetensors(str(state), dict(tree_flatten(both)), {"done": str(step)})
    mx.save_safetensors(str(out / "tower.safetensors"), checkpoint(tower), {"format": "mlx"})


if __name__ == "__main__":
    main()
