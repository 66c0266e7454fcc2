"""Trains the shipped drafter of the default model on one CUDA GPU: prompts, answers, hidden states, heads, files.

    PYTHONPATH=. python -m scripts.drafter prompts answers heads --model FOLDER --work WORK --out OUT

README.md in this folder says what each phase does, and with which options the shipped drafter was made.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from scripts.drafter import kernels
from scripts.drafter.answers import Template, make_answers
from scripts.drafter.common import CUDA, DEVICE, note
from scripts.drafter.prompts import make_prompts
from scripts.drafter.slots import Slots
from scripts.drafter.target import Target
from scripts.drafter.training import train_heads


def smoke() -> None:
    """Compare the kernels with plain PyTorch, in the default model's shape."""
    dtype = torch.float16
    target = Target.random(dtype, num_hidden_layers=4)
    slots = Slots(target, 64, 256, {0, 2})
    draw = np.random.default_rng(0)
    prompts = [draw.integers(3, 40_000, draw.integers(2, 150)).tolist() for _ in range(64)]
    slots.fill(list(range(64)), prompts, [250] * 64, [0.0] * 64, 4096)
    with torch.no_grad():
        plain, quick = both_ways(lambda: slots.logits().float())
        calls = [target.call(torch.tensor([row], device=DEVICE))[0, -1, : target.width] for row in prompts[:8]]
        whole = torch.stack(calls) @ target.embeddings.T
    note("kernels against plain", float((quick - plain).abs().max() / plain.std()))
    note("one call against step by step", float((whole.float() - quick[:8]).abs().max() / plain.std()))
    logits = torch.randn(64, 10_240, device=DEVICE).half() * 5
    columns = torch.stack([torch.randperm(10_240, device=DEVICE)[:16] for _ in range(64)]).to(torch.int16)
    probs = torch.rand(64, 16, device=DEVICE).softmax(-1).half()
    weights = torch.rand(64, device=DEVICE)
    first = logits.clone()
    second = logits.clone()
    copies = iter((first, second))
    a, b = both_ways(lambda: kernels.loss_rows(next(copies), columns, probs, weights))
    note("loss", float((a - b).abs().max()), "gradient", float((first.float() - second.float()).abs().max()))


def both_ways(compute: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is computed with plain PyTorch, and then with the kernels where they run."""
    quick_ones = kernels.USE_TRITON
    kernels.USE_TRITON = False
    plain = compute()
    kernels.USE_TRITON = quick_ones
    return plain, compute()


# Default and meaning of each option that is a number; a number that is whole stays whole.
NUMBERS: dict[str, tuple[float, str]] = {
    "seed": (48, "draws prompts, answers and weights"),
    "cores": (os.cpu_count() or 1, "processes that draw prompts"),
    "prompts": (320_000, "prompts to train on"),
    "held-out": (3000, "prompts to measure with"),
    "tokens": (20_000_000, "answer tokens to make at most"),
    "answer-seconds": (120.0, "time for answers"),
    "answer": (288, "tokens of an answer at most"),
    "slots": (1536, "sequences that are decoded side by side"),
    "length": (1408, "tokens of a conversation at most"),
    "stride": (16, "calls between two looks at the slots"),
    "call-tokens": (65_536, "tokens of a call over whole sequences"),
    "shipped": (10**9, "shipped answers to take along"),
    "vocabulary": (10_240, "tokens that the drafter can draft, at most"),
    "batch": (2048, "roots of a training step"),
    "further": (0.0, "seconds of each further training of the first arm"),
    "further-rate": (1e-4, "its rate"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="+", choices=("prompts", "answers", "heads", "smoke"))
    parser.add_argument("--model", type=Path, help="folder of the target: config.json, model.safetensors")
    parser.add_argument("--tokenizer", type=Path, help="its tokenizer.json, if not in that folder")
    parser.add_argument("--work", type=Path, default=Path("/tmp/drafter"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/drafter/out"))
    for name, (default, meaning) in NUMBERS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=meaning)
    parser.add_argument("--arm", action="append", default=[], help="NAME:STATE:INNER:BLOCKS:SECONDS:RATE:DROPOUT")
    parser.add_argument("--start", type=Path, help="folder of a drafter that the arms begin with")
    parser.add_argument("--tiny", action="store_true", help="a small random target on the CPU, to try the script")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(options.seed)
    if "smoke" in options.phases:
        smoke()
        return
    tokenizer = Tokenizer.from_file(str(options.tokenizer or options.model / "tokenizer.json"))
    template = Template(tokenizer)
    prompts = make_prompts(options, tokenizer)
    if options.phases == ["prompts"]:
        return
    if options.tiny:
        small = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 6}
        target = Target.random(torch.float32, **small)
    else:
        target = Target.read(options.model, torch.float16 if CUDA else torch.float32)
    note("target read")
    tokens, facts = make_answers(options, target, template, prompts)
    if CUDA:
        torch.cuda.empty_cache()
    if "heads" in options.phases:
        train_heads(options, target, tokens, facts)


if __name__ == "__main__":
    main()
