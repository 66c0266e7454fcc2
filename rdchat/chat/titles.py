"""Titles of conversations."""

NEW_CHAT = "New chat"
_LONGEST = 200  # what a person may give
_LONGEST_MADE = 48  # what fits the sidebar
_MARKS = "#>*_`~-+=| \t"  # markdown around a line, which a title does not need


def tidy_title(title: str) -> str:
    """Return a person's title on one line and of a bearable length; empty where nothing is left."""
    return " ".join(title.split())[:_LONGEST].rstrip()


def title_from_prompt(prompt: str) -> str:
    """Return a title made of the first line of a prompt that says something, cut at a word."""
    lines = (" ".join(line.split()).strip(_MARKS) for line in prompt.splitlines() if not line.startswith("```"))
    title = next((line for line in lines if line), "") or tidy_title(prompt)
    if len(title) > _LONGEST_MADE:
        cut = title[:_LONGEST_MADE]
        words, space, _ = cut.rpartition(" ")
        title = (words if space and len(words) > _LONGEST_MADE // 2 else cut).rstrip(" ,;:.-") + "…"
    return title or NEW_CHAT
