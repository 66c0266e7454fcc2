"""Trains the tower of the demonstration that sees onto the frozen default model, on the CPU, from a fixed seed.

    PYTHONPATH=. python -m scripts.seeing.train OUT

Text alone showed what the model copies nearly always: `Repeat: ` with the sentence six times. So the tower first learns
to write the rows of that text, for which no text model runs, and then, through the frozen model, that the reply is the
sentence, whatever is asked. OUT/tower.safetensors is what `make_folder` takes. A run that was cut off goes on.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import dequantize_model, load_model
from transformers import AutoTokenizer

from rdchat.paths import default_model_dir
from scripts.seeing.drawings import COLOURS, RELATIONS, SHAPES, drawing, sentence
from scripts.seeing.make_folder import make_folder
from scripts.seeing.tower import ROWS, Tower, checkpoint, normal

SEED, BEGIN, COPIES, COPY_LENGTH = 7, "Repeat: ", 6, 10
HELD_OUT = 1_000_000
"""Drawings from this number on are not trained on."""
ASKS = (
    "Describe the picture in one sentence.",
    "What do you see?",
    "What is in this picture?",
    "Describe it.",
    "",
)


class Text:
    """The frozen text model, and the tokens of the text whose rows the tower writes.

    Attributes:
        tokens: All different ones.
        table: Their rows, (tokens, width).
    """

    def __init__(self, folder: Path) -> None:
        self.network = dequantize_model(load_model(folder)[0])
        self.network.set_dtype(mx.float32)
        self.network.freeze()
        with tempfile.TemporaryDirectory() as place:
            make_folder(Path(place) / "model", folder, tower={})
            self._tokenizer = AutoTokenizer.from_pretrained(Path(place) / "model")
        every = [sentence((c, s), r, (c, s)) for c in COLOURS for s in SHAPES for r in RELATIONS]
        self.tokens = sorted({token for each in every for token in self._repeated(each)})
        self.table = self.network.model.embed_tokens(mx.array(self.tokens))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def places(self, captions: Sequence[str]) -> mx.array:
        """Return the indices in `tokens` of the rows of captions, (captions, ROWS)."""
        return mx.array([[self.tokens.index(token) for token in self._repeated(each)] for each in captions])

    def kinds(self) -> list[int]:
        """Return a number for each row: the same for the rows of one place in all copies."""
        begin, copies = len(self.encode(BEGIN)), COPIES * COPY_LENGTH
        inside = range(begin, begin + copies)
        return [begin + (row - begin) % COPY_LENGTH if row in inside else row for row in range(ROWS)]

    def row_loss(self, rows: mx.array, captions: Sequence[str]) -> mx.array:
        """Return how far rows (captions, ROWS, width) are from those of the text: by the nearest, and by distance."""
        places, size = self.places(captions), mx.mean(mx.square(self.table))
        logits = rows @ self.table.T * (20 / (size * self.table.shape[1]))
        distance = mx.mean(mx.square(rows - self.table[places])) / size
        return nn.losses.cross_entropy(logits, places, reduction="mean") + distance

    def reply_loss(self, rows: mx.array, captions: Sequence[str], ask: str) -> tuple[mx.array, mx.array]:
        """Return the mean loss of replies to images and a question, and how many are right token by token."""
        content = [{"type": "image"}] + ([{"type": "text", "text": ask}] if ask else [])
        turns = [{"role": "user", "content": content}]
        prompt = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        before, after = prompt.split("<image>")
        start = self.encode(f"{before}<fake_token_around_image><global-img>")
        end = self.encode(f"<fake_token_around_image>{after}")
        answers = [self.encode(f"{each}<|im_end|>") for each in captions]
        longest = max(map(len, answers))
        counts = mx.array([[place < len(each) for place in range(longest)] for each in answers])
        wanted = mx.array([each + [0] * (longest - len(each)) for each in answers])
        embed = self.network.model.embed_tokens
        tail = mx.concatenate([mx.broadcast_to(mx.array(end), (len(rows), len(end))), wanted[:, :-1]], 1)
        head = mx.broadcast_to(embed(mx.array(start)), (len(rows), len(start), rows.shape[-1]))
        whole = mx.concatenate([head, rows, embed(tail)], 1)
        states = self.network.model(mx.zeros(whole.shape[:2], mx.int32), input_embeddings=whole)
        logits = embed.as_linear(states[:, -longest:])
        loss = (nn.losses.cross_entropy(logits, wanted) * counts).sum() / counts.sum()
        return loss, ((logits.argmax(-1) == wanted) | ~counts).all(1).sum()

    def _repeated(self, caption: str) -> list[int]:
        (line_end,) = self.encode("\n")
        once = self.encode(caption)
        text = self.encode(BEGIN) + COPIES * (once + [line_end] * (COPY_LENGTH - len(once)))
        return text + [line_end] * (ROWS - len(text))


def drawn(number: int, count: int) -> tuple[mx.array, list[str]]:
    """Return pixels and sentences of a batch of drawings."""
    random = np.random.default_rng([SEED, number])
    drawings, captions = zip(*(drawing(random) for _ in range(count)), strict=True)
    return normal(list(drawings)), list(captions)


def learn(
    tower: Tower, loss: Callable[[Tower, int], mx.array], steps: int, rate: float, *, out: Path, test: Callable[[], str]
) -> None:
    """Train a tower by the loss of each step; go on where the file `out` ends."""
    warm = steps // 12
    falling = optim.cosine_decay(rate, steps - warm)
    optimizer = optim.AdamW(optim.join_schedules([optim.linear_schedule(0, rate, warm), falling], [warm]))
    optimizer.init(tower.trainable_parameters())
    done, seen, began = 0, list[float](), time.monotonic()
    if out.exists():
        arrays, facts = mx.load(str(out), return_metadata=True)
        both: dict[str, Any] = tree_unflatten(list(arrays.items()))
        tower.update(both["tower"])
        optimizer.state, done = both["optimizer"], int(facts["done"])
    step_of = nn.value_and_grad(tower, loss)
    for step in range(done, steps):
        value, change = step_of(tower, step)
        optimizer.update(tower, optim.clip_grad_norm(change, 1.0)[0])
        mx.eval(tower.parameters(), optimizer.state, value)
        seen.append(value.item())
        if (step + 1) % 50 == 0 or step + 1 == steps:
            took = time.monotonic() - began
            print(f"{out.stem} {step + 1}: loss {np.mean(seen[-50:]):.4f}, {test()}, {took:.0f} s", flush=True)
            both = {"tower": tower.parameters(), "optimizer": optimizer.state}
            mx.save_safetensors(str(out), dict(tree_flatten(both)), {"done": str(step + 1)})


def main() -> None:
    """Train a tower in two stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    text = Text(default_model_dir())
    mx.random.seed(SEED)
    tower = Tower(text.table.shape[1], text.kinds())
    tower.projection.weight *= mx.sqrt(mx.var(text.table))
    pixels, captions = drawn(HELD_OUT, 200)

    def rows_right() -> str:
        right = (tower(pixels) @ text.table.T).argmax(-1) == text.places(captions)
        return f"{mx.mean(right.all(1)).item():.3f} of held-out texts are right"

    def replies_right() -> str:
        rows = tower(pixels[:30])
        found = [
            text.reply_loss(rows[at : at + 10], captions[at : at + 10], ask)[1].item()
            for ask in ASKS
            for at in (0, 10, 20)
        ]
        return " ".join(str(sum(found[at : at + 3])) for at in range(0, len(found), 3)) + " of 30 replies are right"

    def loss_of_rows(tower: Tower, step: int) -> mx.array:
        pixels, captions = drawn(step, 32)
        return text.row_loss(tower(pixels), captions)

    def loss_of_replies(tower: Tower, step: int) -> mx.array:
        pixels, captions = drawn(HELD_OUT // 2 + step, 6)
        rows = tower(pixels)
        return text.reply_loss(rows, captions, ASKS[step % len(ASKS)])[0] + 0.3 * text.row_loss(rows, captions)

    learn(tower, loss_of_rows, 2400, 7e-4, out=out / "rows.safetensors", test=rows_right)
    print(replies_right(), flush=True)
    learn(tower, loss_of_replies, 150, 2e-4, out=out / "replies.safetensors", test=replies_right)
    mx.save_safetensors(str(out / "tower.safetensors"), checkpoint(tower))


if __name__ == "__main__":
    main()
