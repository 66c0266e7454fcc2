"""Explanations of the figures of a reply and of the rows of the time ledger."""

from rdchat.inference.api.shown_ledger import REPLY, Spent

SPEED = (
    "Tokens written per second, after the first one: (tokens written - 1) / decode time. Reading the prompt does not "
    "count."
)
RATIO = "The speed of this reply divided by the speed of plain decoding."
PLAIN = (
    "The estimated speed without drafting, from the measured time of a plain call of the model at this context length. "
    "It is measured while the app is idle, after the first reply, and corrected by the plain calls of later replies; "
    "± is how far those were from the estimate."
)
TTFT = "Time from the request to the first token of the reply."
DECODE_TIME = "Time from the first token of the reply to its last token so far."

ACCEPTANCE = "Drafted tokens that were accepted, of those that were offered along the chosen path."
TOKENS_PER_CALL = "Tokens written for each call of the model while decoding; 1 in plain decoding."
ROUNDS = "Calls of the model with a draft; none in plain decoding."
NODES = "Tokens that a call of the model verified, including the token chosen before; padding does not count."
DROPPED_DRAFTS = "Drafts that were discarded because the scores of their drafter were not finite."
HOST_SYNCS = "Times the processor waited for the device, for each call of the model."
LENGTHS = (
    "Rounds by accepted length: drafted tokens that a round accepted. The one token that the model itself adds in each "
    "round is not counted."
)
POSITIONS = "Of the rounds that offered a token at this place in the draft, the share that accepted it."

TOKENS_WRITTEN = "Tokens of the reply, with the first and a final end token, without those that a stop string cut off."
CONTEXT = "Tokens in the model's context: the prompt's, and the reply's so far."
PEAK_MEMORY = "The most memory MLX held during the reply."

EDITED = "You edited this text; the figures of the model's own text are with the original reply."
TEMPERATURE = "How freely the model chose: 0 always takes the most likely token."

_STAGES: dict[str, str] = {
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
    return _STAGES.get(name, name)
