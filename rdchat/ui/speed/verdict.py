"""One line on what the figures of a reply mean. It says nothing that was not measured."""

from rdchat.inference.api.reply_statistics import Statistics

# Weights of a model whose steps are so short that a draft costs more than it saves.
_SMALL_MODEL = 1_000_000_000
SLOWER = "Slower"


def verdict(figures: Statistics, hindered: str | None = None, *, writing: bool = False, parameters: int = 0) -> str:
    """Return the line, which begins with `SLOWER` where drafting was a loss.

    Args:
        figures: Those of a reply.
        hindered: What keeps the computer busy, such as "the computer is busy"; empty for nothing. None where that is
            unknown, since the reply is an earlier one.
        writing: Whether it is being written.
        parameters: Those of its model; 0 where they are unknown.
    """
    if figures.speedup_range is not None:
        low, high = figures.speedup_range
        if high < 1:
            reason = hindered or "few drafted tokens were kept"
            return f"{SLOWER} than without drafting" if hindered is None else f"{SLOWER}: {reason}"
        return "Fine: drafting makes it faster" if low > 1 else "Fine: as fast as without drafting"
    if writing and not figures.settled:
        return "Comparing with plain decoding…"
    return _drafted(figures, hindered) if figures.rounds else _plain(figures, hindered, parameters)


def _drafted(figures: Statistics, hindered: str | None) -> str:
    """Return why a drafted reply cannot be compared with plain decoding."""
    if not figures.settled:
        return "Too short to compare"
    return "Not compared with plain decoding" if hindered is None else _waits(hindered)


def _plain(figures: Statistics, hindered: str | None, parameters: int) -> str:
    """Return why a reply was not drafted."""
    if figures.choice is None or (figures.choice.speedup is None and hindered is None):
        return "Written without drafting"
    if figures.choice.speedup is None:
        return _waits(hindered or "")
    is_loss = figures.choice.speedup < 1 and 0 < parameters < _SMALL_MODEL
    return "Too small to gain: measured" if is_loss else "Fine: nothing was worth drafting"


def _waits(hindered: str) -> str:
    return f"No comparison: {hindered}" if hindered else "Not compared yet: rdchat measures while it is idle"
