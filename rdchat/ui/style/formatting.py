"""Figures, times, states and names of models as the windows show them. Pure functions; none asks Qt."""

import math
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rdchat import host, paths
from rdchat.inference.api import Dtype, ranked_model, remote_model
from rdchat.wording import size_text

NONE = "\N{EN DASH}"
LEAVES = "↗"
"""Marks a model whose server gets what is sent to it."""
SEES = "sees images"
"""Marks a model with a vision tower."""
# A measured ratio whose range (high - low) is narrower than this is shown with two decimals.
_SURE = 0.2
MACHINE = "this Mac" if host.MACOS else "this machine"
DEFAULT_MODEL = f"{paths.default_model_dir().name} (default)"
"""The name of the default model: its folder's, as `model_label` names models."""


def dtype_text(dtype: str) -> str:
    """Return `4-bit` for `4bit`, also for a model's own quantisation that is not a `Dtype`."""
    return "Automatic" if dtype == Dtype.AUTO else dtype.replace("bit", "-bit")


DTYPE_TEXT = {dtype: dtype_text(dtype) for dtype in Dtype}


def rate(tokens_per_second: float | None) -> str:
    """Return tokens a second with about three significant figures: `8.31`, `42.5`, `1,204`."""
    if tokens_per_second is None:
        return NONE
    return f"{tokens_per_second:,.{rate_digits(tokens_per_second)}f}"


def rate_digits(tokens_per_second: float) -> int:
    """Return how many decimals `rate` shows."""
    return 2 if tokens_per_second < 10 else 1 if tokens_per_second < 100 else 0


def ratio(times: float) -> str:
    """Return `1.42x`."""
    return f"{times:.2f}x"


def speedup(times: float, low: float, high: float) -> str:
    """Return a ratio with the digits that its range allows: `2.04x`, `about 2x` or `1.6 to 2.9x`.

    `about` takes a range that has the whole number inside and is narrower than 1. From 1.5 on: "about 1x" says nothing.
    """
    if high - low < _SURE:
        return ratio(times)
    if times >= 1.5 and low <= round(times) <= high and high - low < 1:
        return f"about {times:.0f}x"
    return ratios(low, high)


def ratios(low: float, high: float) -> str:
    """Return a range of ratios: `1.6 to 2.9x`. Near 1 and below, one decimal could say the opposite."""
    first, last = (f"{end:.{2 if end < 1.1 else 1}f}" for end in (low, high))
    return f"{first} to {last}x"


def percent(share: float | None) -> str:
    """Return `62 %`."""
    return NONE if share is None else f"{share * 100:.0f}\N{NARROW NO-BREAK SPACE}%"


def share(part: float) -> str:
    """Return a share of a whole like `percent`, but with a decimal below ten percent: `71 %`, `0.4 %`."""
    return f"{part * 100:.{1 if part < 0.0995 else 0}f}\N{NARROW NO-BREAK SPACE}%"


def decimal(number: float | None) -> str:
    """Return two decimals, one from ten on: `2.14`, `12.0`."""
    if number is None:
        return NONE
    return f"{number:.{2 if number < 9.995 else 1}f}"


def duration(milliseconds: float) -> str:
    """Return `85 ms`, `1.24 s` or `2 min 5 s`; nothing measured is a dash."""
    if milliseconds <= 0:
        return NONE
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_995:
        return f"{milliseconds / 1000:.2f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds} s"


def memory(size_bytes: int) -> str:
    """Return `512 MB` or `1.24 GB`; nothing measured is a dash."""
    return size_text(size_bytes) if size_bytes > 0 else NONE


def count(number: int) -> str:
    """Return `1,204`; none is a dash."""
    return f"{number:,}" if number else NONE


def listed(names: Sequence[str], limit: int, mark: str = ", ") -> str:
    """Return the first `limit` names with `mark` between them, and how many more there are: `a, b and 3 more`."""
    more = len(names) - limit
    return mark.join(names[:limit]) + (f"{mark[-1]}and {more:,} more" if more > 0 else "")


def day_text(when: float | None) -> str:
    """Return a time as a list shows it: `14:05`, `Yesterday`, `Tuesday`, `3 Nov`, `3 Nov 2024`, `Unknown date`."""
    try:
        date = datetime.fromtimestamp(math.nan if when is None else when)
    except (ValueError, OverflowError, OSError):
        # No calendar has the date.
        return "Unknown date"
    today = datetime.fromtimestamp(time.time())
    days = (today.date() - date.date()).days
    # The clock may have been put back.
    if -1 <= days <= 0:
        return f"{date:%H:%M}"
    if days == 1:
        return "Yesterday"
    if 0 < days < 7:
        return f"{date:%A}"
    return f"{date.day} {date:%b}" if date.year == today.year else f"{date.day} {date:%b} {date.year}"


def model_label(model: str) -> str:
    """Return the name of a model by its folder, hub id or address; one that runs elsewhere is marked.

    Such as `SmolLM2`, `SmolLM2  ·  on 2 Macs` (`ranked_model` returns the hosts and the model), or a `remote_label`.
    """
    if ranked := ranked_model(model):
        return f"{Path(ranked[1] or DEFAULT_MODEL).name}  ·  on {len(ranked[0])} Macs"
    remote = remote_model(model)
    return remote_label(*remote) if remote else Path(model).name


def remote_label(server: str, model: str) -> str:
    """Return the name of a remote model with its mark."""
    return f"{model}  ·  on {server} {LEAVES}"
