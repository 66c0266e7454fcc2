"""The prompts of a benchmark that is given no file: everyday questions, each of another kind."""

from rdchat.inference.api.prompt_files import Prompt

_NOTES = (
    "The town library will close for two weeks in August while its roof is repaired. Books that fall due in that time "
    "may be returned until the tenth of September. The reading room in the town hall stays open, and newspapers are "
    "kept there. The children's summer club meets in the school on Tuesdays and Fridays, from nine to noon."
)

EVERYDAY_PROMPTS = (
    Prompt("Explain in a few sentences why the sky is blue.", "explaining"),
    Prompt("Write a Python function that checks whether a number is prime, with a short explanation.", "code"),
    Prompt("Tell me a short story about a lighthouse keeper and a whale.", "story"),
    Prompt("List ten things to pack for a week of hiking, each with half a sentence why.", "list"),
    Prompt(f"Summarise this notice in two sentences.\n\n{_NOTES}", "summary"),
    Prompt(f"Copy this notice word for word, and correct nothing.\n\n{_NOTES}", "copy"),
)
