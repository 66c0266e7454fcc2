"""As many of the best passages as there is room for. Plain functions."""

from collections.abc import Callable, Sequence

from rdchat.chat.attachments.choosing import Part, Passage, best_within, joined
from rdchat.services.files.token_counts import TokenCount

FILLED = 0.75  # of the room: the rest is for what comes later in the chat
_TRIES = 4


def fitting_passages(
    passages: Sequence[Passage],
    order: Sequence[int],
    room: int,
    per_token: float,
    count: Callable[[str], TokenCount],
) -> tuple[int, Part, TokenCount]:
    """Take the best passages until the room is filled as far as it is to be; at least one, though it may not fit.

    Args:
        passages: All of a file.
        order: Places of those that match, the best first; not empty.
        room: Tokens.
        per_token: Characters, about.
        count: Counts the tokens of a text.

    Returns:
        How many they are, their text and its tokens.
    """
    taken = len(best_within(passages, order, int(max(room, 1) * FILLED * per_token)))
    for _ in range(_TRIES):
        part = joined(passages, order[:taken])
        tokens = count(part.text)
        if tokens.tokens <= room or taken == 1:
            break
        taken = max(int(taken * room * FILLED / tokens.tokens), 1)
    return taken, part, tokens
