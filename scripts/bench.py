"""Speed, as ratios inside one run: `make bench`. What is worth keeping goes into docs/benchmarks.md.

Plain decoding against stock `mlx_lm.stream_generate` on the very same network in memory, greedy, interleaved, the order
alternating, medians of the ratios of neighbouring runs. Greedy texts must be identical.
"""

import argparse
import json
import statistics
import sys
import time

from rdchat.inference.events import ReplyEnd
from rdchat.inference.loading import load_model
from rdchat.inference.requests import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.session import ChatSession
from rdchat.inference.target import LoadedModel

# isort: split
from mlx_lm import stream_generate  # after rdchat.inference, which picks the BLAS that MLX will use

PROMPTS = (
    "Explain in three sentences why the sky is blue.",
    "Write a Python function that checks whether a number is prime, with a short explanation.",
    "Tell me a short story about a lighthouse keeper and a whale.",
    "List ten things to pack for a week of hiking, each with half a sentence why.",
)


def run_ours(model: LoadedModel, prompt: str, tokens: int) -> tuple[float, str]:
    """Return decode tokens a second, and the text."""
    request = GenerationRequest((ChatMessage(Role.USER, prompt),), SamplingParams(temperature=0, max_tokens=tokens))
    *_, end = ChatSession(model).generate(request)
    assert isinstance(end, ReplyEnd)
    return end.statistics.decode_tps or 0.0, end.text


def run_mlx_lm(model: LoadedModel, prompt: str, tokens: int) -> tuple[float, str]:
    """The same of stock mlx-lm; timed from its first token to its last, as ours is."""
    ids = model.encode_chat((ChatMessage(Role.USER, prompt),), False)
    text, count, first = "", 0, 0.0
    for response in stream_generate(model.network, model.tokenizer, ids, max_tokens=tokens):
        now = time.perf_counter()
        first = first or now
        text += response.text
        count = response.generation_tokens
    return (count - 1) / (now - first), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--trials", type=int, default=5)
    args = parser.parse_args()
    model = load_model(args.model, args.dtype)
    run_ours(model, PROMPTS[0], 8), run_mlx_lm(model, PROMPTS[0], 8)  # warm up
    ratios, speeds, identical = [], [], True
    for trial in range(args.trials):
        for number, prompt in enumerate(PROMPTS):
            pair = [run_ours, run_mlx_lm]
            if (trial + number) % 2:
                pair.reverse()
            results = {run: run(model, prompt, args.tokens) for run in pair}
            (ours, our_text), (theirs, their_text) = results[run_ours], results[run_mlx_lm]
            ratios.append(ours / theirs)
            speeds.append(ours)
            identical &= our_text == their_text
            print(f"{ours:6.1f} tokens/s, {ours / theirs:.3f} of mlx-lm", file=sys.stderr)
    low, median, high = statistics.quantiles(ratios, n=4)
    report = {
        "model": model.info.name,
        "dtype": model.info.dtype,
        "device": model.info.device,
        "decode_tps": statistics.median(speeds),
        "ratio_to_mlx_lm": {"median": median, "low": low, "high": high, "n": len(ratios)},
        "identical_greedy_text": identical,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
