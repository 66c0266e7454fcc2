"""One line on what the figures of a reply mean. It says nothing that was not measured.

While other work keeps the computer busy, nothing is praised or blamed: gains and losses are judged alike.
"""

from typing import NamedTuple

from rdchat.inference.api.reply_statistics import Statistics

# Weights of a model whose steps are so short that a draft costs more than it saves.
_SMALL_MODEL = 1_000_000_000
# A gain that is surely this large is more than a little.
_LARGE_GAIN = 1.2


class Verdict(NamedTuple):
    """What the figures of a reply mean.

    Attributes:
        text: The line.
        color: Colour of the speed-up: that of a gain, of a loss, or of text where there is no verdict.
    """

    text: str
    color: str = "text"


def verdict(
    figures: Statistics, *, now: bool = False, training: bool = False, writing: bool = False, parameters: int = 0
) -> Verdict:
    """Return what the figures mean.

    Args:
        figures: Those of a reply.
        now: Whether it is being written or was written just now, so that the other arguments concern it.
        training: Whether a training runs.
        writing: Whether the reply is being written.
        parameters: Those of its model; 0 where they are unknown.
    """
    if not figures.settled and (writing or figures.rounds):
        return Verdict("Comparing with plain decoding…" if writing else "Too short to compare")
    if not figures.rounds and (figures.choice is None or (figures.choice.speedup is None and not now)):
        return Verdict("Written without drafting")
    if training or figures.was_hindered:
        busy = f"the computer {'is' if writing else 'was'} busy with other work"
        return Verdict(f"No verdict: {'a training is running' if training else busy}", "muted")
    if figures.speedup_range is not None:
        return _compared(figures, *figures.speedup_range)
    return Verdict(_not_compared(figures, now, parameters))


def _not_compared(figures: Statistics, now: bool, parameters: int) -> str:
    """Return why there is no speed-up."""
    if figures.rounds and figures.plain_step_ms:
        return "No verdict: the speed of the computer changed"
    if figures.choice is not None and figures.choice.speedup is not None and not figures.rounds:
        is_loss = figures.choice.speedup < 1 and 0 < parameters < _SMALL_MODEL
        return "Too small to gain: measured" if is_loss else "Fine: nothing was worth drafting"
    return "Not compared yet: rdchat measures while it is idle" if now else "Not compared with plain decoding"


def _compared(figures: Statistics, low: float, high: float) -> Verdict:
    """Return the verdict on a speed-up between two values; the words follow the end that is nearer to 1."""
    if figures.others_share is None:
        return Verdict("No verdict: it is not known how busy the computer was")
    if high < 1:
        return Verdict("Slower: its drafts cost more time than they saved", "warning")
    if low <= 1:
        alike = "Fine: as fast as without drafting"
        return Verdict(alike if figures.as_fast else "No verdict: it may be faster or slower")
    return Verdict(f"Fine: drafting makes it {'' if low >= _LARGE_GAIN else 'a little '}faster", "success")
