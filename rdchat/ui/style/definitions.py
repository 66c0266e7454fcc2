"""Explanations of the rows of the time ledger."""

from rdchat.inference.api.ledger_view import REPLY, Spent

_STAGES: dict[str, str] = {
    REPLY: "From the request to the last token: the sum of the rows below.",
    Spent.READING: "The model reads the chat, up to the first token of the reply.",
    Spent.DRAFTING: "Tokens are drafted for the model to check.",
    Spent.CHECKING: (
        "The model checks drafted tokens and chooses the next one. A draft that is computed in the same step counts "
        "here; exact times separate the two."
    ),
    Spent.WRITING: (
        "The model computes the next token without a draft. "
        "Part of this work overlaps other rows; only the time beyond them counts here."
    ),
    Spent.OTHER: "The processor's own work: preparing steps, keeping tokens, making text of them and showing it.",
    "Chat template and tokens": "The chat is put into the model's format and cut into tokens.",
    "Reading the prompt": "The model reads the prompt, except for what it kept from the turn before.",
    "Reading by the drafter": "The drafter reads the prompt.",
    "First token": "The first token of the reply is chosen.",
    "Prepare drafts": "The draft is put into the form in which it is checked.",
    "Look up": "The last words are looked up in the chat and in earlier replies.",
    "Beam search": "The drafter follows several beams at once.",
    "Select nodes": "The most likely tokens of all beams are kept, and common beginnings merged.",
    "Draft model": "The draft model reads the tokens that it has not seen yet.",
    "Rank candidates": "The draft model's most likely next tokens are picked.",
    "Fit the format": "Drafted tokens that the answer format forbids are dropped; those that it forces are added.",
    "Wait for the draft": "The processor waits for the device to draft.",
    "Forward": "The model computes what may come next at each position.",
    "Choice": "The next token is chosen at each position.",
    "Forward and choice": "The model computes what may come next, and the token is chosen.",
    "Forward, choice and the next draft": "The same, with the next draft computed in the same step.",
    "Prepare steps": "Steps of the model are prepared, and their results are read.",
    "Accept": "Drafted tokens that match the model's own choice are kept.",
    "Commit": "The caches keep what was accepted and drop the rest.",
    "Text": "Tokens become text.",
    "Hand over tokens": "Tokens go to the window or the terminal.",
    "Automatic mode": "Auto compares drafting with plain decoding.",
    "Not measured": "The rest of the reply's time.",
}


def stage_text(name: str) -> str:
    """Return the explanation of a row, or its name if there is none."""
    return _STAGES.get(name, name)
