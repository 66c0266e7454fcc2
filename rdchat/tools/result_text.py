"""The longest text of a tool's result."""

MAX_TEXT = 100_000


def cut_text(text: str) -> str:
    """Return a result's text within `MAX_TEXT` characters, with a note where it is cut."""
    note = f"\n[Cut by rdchat: the result has {len(text):,} characters, {MAX_TEXT:,} are above.]"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + note
