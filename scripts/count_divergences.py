"""Counts how often drafted decoding chooses another token than plain decoding would, by precision.

    python scripts/count_divergences.py --dtypes float32 float16 --temperatures 0 0.7

See `rdchat.inference.benchmark.differences`; the replies are drafted by the model's drafter.
"""

import argparse

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from rdchat.inference.api.requests import Dtype, Mode
from rdchat.inference.benchmark.differences import Divergences, count_divergences
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession

DTYPES = (Dtype.FLOAT32, Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FOUR_BIT)


def show(counts: list[Divergences]) -> None:
    """Print them as Markdown."""
    print("| precision | temperature | tokens | divergences | per 1,000 | gaps (rounding), in nats |")
    print("|---|---|---|---|---|---|")
    for row in counts:
        pairs = zip(row.gaps, row.rounding, strict=True)
        gaps = ", ".join(f"{gap:.1e} ({rounding:.1e})" for gap, rounding in pairs) or "-"
        counts_of = f"{row.tokens:,} | {len(row.gaps)} | {row.per_thousand:.1f}"
        print(f"| {row.dtype} | {row.temperature:g} | {counts_of} | {gaps} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--dtypes", nargs="+", choices=[dtype.value for dtype in Dtype], default=list(DTYPES))
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7])
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    args = parser.parse_args()
    counts = []
    for dtype in args.dtypes:
        session = ChatSession(load_model(args.model, dtype))
        for temperature in args.temperatures:
            *_, last = count_divergences(session, Mode.DRAFTER, temperature, args.tokens)
            counts.append(last)
    show(counts)


if __name__ == "__main__":
    main()
