"""How often drafted decoding takes another token than plain decoding would, by precision.

    python scripts/count_divergences.py --dtypes float32 float16 --temperatures 0 0.7

Drafts are verified several rows a call, plain decoding feeds one row a call, and their kernels round differently: where
two tokens all but tie, one may win here and the other there. Two replies that ran apart once would differ from then on,
so they are not compared. A reply is decoded with drafts (W4 L5 with the lookup branch), then plain decoding is led
along its tokens, and each place counts where it would have taken another one. Sampling is the app's, with its default
filters. The gap is what separates the two tokens under plain decoding: the difference of their final scores or, where a
filter drops the reply's token there, its distance from the filter's border. Behind each is what rounding makes of
scores there.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from rdchat.inference.api.bench_results import Difference
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import (
    ChatMessage,
    DraftSettings,
    Dtype,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
)
from rdchat.inference.benchmark.differences import divergences
from rdchat.inference.benchmark.everyday import EVERYDAY_PROMPTS
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel

DTYPES = (Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FOUR_BIT)


@dataclass(frozen=True)
class Count:
    """One precision and temperature: the tokens that were compared, and where plain decoding differs."""

    dtype: str
    temperature: float
    tokens: int
    found: tuple[Difference, ...]


def count(model: LoadedModel, temperature: float, replies: int, tokens: int) -> Count:
    """Decode replies with drafts and compare them."""
    session, compared = ChatSession(model), 0
    found: list[Difference] = []
    for number in range(replies):
        message = ChatMessage(Role.USER, EVERYDAY_PROMPTS[number % len(EVERYDAY_PROMPTS)].text)
        sampling = SamplingParams(temperature, max_tokens=tokens)
        request = GenerationRequest((message,), sampling, number, draft=DraftSettings(Mode.RECURRENT))
        *_, end = session.generate(request)
        assert isinstance(end, ReplyEnd)
        if end.mode is not Mode.RECURRENT:
            sys.exit(end.mode_reason)
        found += divergences(model, request, end.token_ids)
        compared += len(end.token_ids) - 1
        print(f"{model.info.dtype}, temperature {temperature:g}: {len(found)} of {compared:,} tokens", file=sys.stderr)
    return Count(model.info.dtype, temperature, compared, tuple(found))


def show(counts: list[Count]) -> None:
    """Print them as Markdown."""
    print("| precision | temperature | tokens | divergences | per 1,000 | gaps (rounding), in nats |")
    print("|---|---|---|---|---|---|")
    for row in counts:
        gaps = ", ".join(f"{one.gap:.1e} ({one.rounding:.1e})" for one in row.found) or "-"
        rate = 1000 * len(row.found) / max(row.tokens, 1)
        print(f"| {row.dtype} | {row.temperature:g} | {row.tokens:,} | {len(row.found)} | {rate:.1f} | {gaps} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--dtypes", nargs="+", choices=[dtype.value for dtype in Dtype], default=list(DTYPES))
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7])
    parser.add_argument("--replies", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    counts = []
    for dtype in args.dtypes:
        model = load_model(args.model, dtype)
        counts += [count(model, temperature, args.replies, args.tokens) for temperature in args.temperatures]
    if args.json:
        print(json.dumps([asdict(row) for row in counts], indent=1))
    else:
        show(counts)


if __name__ == "__main__":
    main()
