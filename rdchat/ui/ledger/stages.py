"""What each stage of the time ledger is, for people."""

_WORDS = {
    "template and tokenize": "The chat is put into the model's own format and cut into tokens.",
    "prefill": "The model reads the prompt, but for what it kept from the turn before.",
    "prefill of the drafter": "The drafter reads the prompt.",
    "first token": "The reply's first token is chosen from what the model read.",
    "round": "One call of the model: draft, verify, accept, commit.",
    "draft": "The drafter proposes tokens.",
    "lookup": "Looks for the last words earlier in the chat, and proposes what followed them there.",
    "beam search": "The recurrent drafter follows several beams at once.",
    "select nodes": "The most likely tokens of all beams are kept, with common beginnings merged.",
    "feed": "The draft model reads the tokens that it has not seen yet.",
    "wait": "The automatic mode waits for what is drafted, to see how sure the drafter is and offer what pays.",
    "rank": "The draft model's most likely next tokens are picked.",
    "verify": "Drafted tokens and the one before them go through the model in one call.",
    "choose": "The model's own choice at each place; waits for the results of the call.",
    "accept": "Drafted tokens that equal the model's choice join the reply.",
    "commit": "The caches keep what was accepted and drop the rest.",
    "detokenize": "Tokens become text.",
    "queue step": "The next call of plain decoding is prepared while the present one runs.",
    "forward": "One token goes through the model.",
    "wait for token": "Waits until the device has the next token.",
    "plan": "The automatic mode weighs drafting against plain decoding.",
    "follow": "The automatic mode learns from the token that came.",
}


def stage_words(name: str) -> str:
    """Return a sentence; the name itself where there is none."""
    return _WORDS.get(name, name)
