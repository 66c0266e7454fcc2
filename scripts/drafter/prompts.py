"""Draws seed prompts as rdchat's `DataMaker` does, on all cores."""

import argparse
import importlib.util
import io
import lzma
import pickle
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from scripts.drafter.common import HELD_OUT_EVERY, ROOT, note


def _draw_prompts(job: Any) -> list[tuple[str, int, str]]:
    """Return (text, tokens the target may add, kind) for each number of a range."""
    seed, start, stop, held, passages = job
    sys.path.insert(0, str(ROOT))
    name = "rdchat.inference.training.seed_prompts"  # Its package needs MLX; the module itself does not.
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "rdchat/inference/training/seed_prompts.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    source = sys.modules[name]
    written = source.texts("written_texts")
    tables = source.texts("seed_prompts")
    if not written.get("split"):
        for table, names in ((written, ("articles", "searches", "requests")), (tables, ("topics",))):
            for name in names:
                table[name] = _part(table[name], held)
        written["foreign"] = {name: _part(lines, held) for name, lines in written["foreign"].items()}
        written["split"] = True
    made = []
    for number in range(start, stop):
        draw = random.Random(f"{seed}/{held}/{number}")
        kind = draw.random()
        if kind < 0.16:
            made.append(("", 120, "magpie"))
            continue
        if kind < 0.24:  # One to three sentences, so that few prompts occur twice.
            languages = list(written["foreign"])
            language = draw.choices(languages, [len(written["foreign"][each]) for each in languages])[0]
            lines = written["foreign"][language]
            foreign = " ".join(draw.sample(lines, min(draw.choice((1, 2, 2, 3)), len(lines))))
            pattern = draw.choice(tables["into_english"])
            made.append((pattern.format_map({"language": language, "foreign": foreign}), 0, "joined translation"))
            continue
        prompt = source.seed_prompt(seed, number, passages, draw.random() < 0.24)
        made.append((prompt.text, prompt.more_tokens, prompt.kind))
    return made


def _part(items: list[Any], held: bool) -> list[Any]:
    return [item for index, item in enumerate(items) if (index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held]


def read_shipped() -> list[tuple[np.ndarray, int, int, float]]:
    """Return the shipped answers as (tokens, answer start, number, temperature)."""
    path = next((ROOT / "assets/training/answers").glob("*.xz"))
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as stored:
        tokens, facts, temperatures = (stored[name] for name in ("tokens", "facts", "temperatures"))
    ends = np.cumsum(facts[:, 1])
    return [
        (tokens[end - length : end], int(start), int(number), float(warmth) / 100)
        for end, (number, length, start), warmth in zip(ends, facts.tolist(), temperatures, strict=True)
    ]


def make_prompts(options: argparse.Namespace, tokenizer: Any) -> dict[bool, list[Any]]:
    path = options.work / "prompts.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())
    shipped = read_shipped()
    answers = [tokens[start:][:110].tolist() for tokens, start, number, _ in shipped if number % HELD_OUT_EVERY != 14]
    passages = []
    for text in tokenizer.decode_batch([each for each in answers if len(each) >= 40], skip_special_tokens=True):
        sentences, stop, _ = text.strip().rpartition(". ")
        if "```" not in text and text.count("\n") <= 3:
            passages.append((sentences or text) + stop.strip())
    note(len(passages), "passages")
    made = {}
    for held, count in ((True, options.held_out), (False, options.prompts)):
        size = -(-count // (options.cores * 4))
        jobs = [(options.seed, first, min(first + size, count), held, passages) for first in range(0, count, size)]
        with ProcessPoolExecutor(options.cores) as pool:  # A worker sees one kind of texts only.
            drawn = [item for part in pool.map(_draw_prompts, jobs) for item in part]
        ids = [each.ids for each in tokenizer.encode_batch([text for text, *_ in drawn], add_special_tokens=False)]
        made[held] = [(row, more, kind) for row, (_, more, kind) in zip(ids, drawn, strict=True)]
        note("held out" if held else "to train on", len(drawn), Counter(kind for *_, kind in drawn).most_common(40))
    path.write_bytes(pickle.dumps(made))
    return made
