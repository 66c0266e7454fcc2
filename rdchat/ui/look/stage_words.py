"""Explains each row of the time ledger."""

from rdchat.inference.api.shown_ledger import REPLY, Spent

_WORDS: dict[str, str] = {
    REPLY: "From the request to the last token: the sum of the rows below.",
    Spent.PROMPT: "The chat is put into the model's format and read, until the first token is known.",
    Spent.DRAFT: "Drafting tokens for the model to verify: preparing the draft, and waiting for the device to draft.",
    Spent.TOGETHER: (
        "The device drafts and calls the model in one step, and is waited for once. Exact times separate the two."
    ),
    Spent.TARGET: (
        "The device computes the model: the forward pass and the choice of the next token. In plain decoding the next "
        "call is prepared meanwhile, and only the rest of its time is waited for."
    ),
    Spent.HOST: (
        "The processor's own work between waits: preparing calls, accepting tokens, making text of them and handing it "
        "to the window."
    ),
    Spent.NOT_MEASURED: "What is left of the reply's time.",
    "Chat template and tokens": "The chat is put into the model's own format and cut into tokens.",
    "Prefill": "The model reads the prompt, but for what it kept from the turn before.",
    "Prefill of the drafter": "The drafter reads the prompt.",
    "First token": "The reply's first token is chosen from what the model read.",
    "Prepare drafts": "The draft is put into the form in which it is verified.",
    "Look up": "Looks for the last words earlier in the chat, and proposes what followed them there.",
    "Beam search": "The drafter follows several beams at once.",
    "Select nodes": "The most likely tokens of all beams are kept, with common beginnings merged.",
    "Draft model": "The draft model reads the tokens that it has not seen yet.",
    "Rank candidates": "The draft model's most likely next tokens are picked.",
    "Wait for the draft": "The device drafts: how sure the drafter is decides how much is verified.",
    "Forward": "The model computes what may come next at each place.",
    "Choice": "The next token is chosen at each place.",
    "Forward and choice": "The model computes what may come next, and the token is chosen, in one go.",
    "Prepare calls": "Calls of the model are put together, and their results are read.",
    "Accept": "Drafted tokens that equal the model's choice join the reply.",
    "Commit": "The caches keep what was accepted and drop the rest.",
    "Text": "Tokens become text.",
    "Hand over tokens": "Tokens go to the window or the terminal, and the next call waits until they are taken.",
    "Automatic mode": "Drafting is weighed against plain decoding, and learnt from what came.",
}


def stage_words(name: str) -> str:
    """Return the explanation of a row, or its name if there is none."""
    return _WORDS.get(name, name)
