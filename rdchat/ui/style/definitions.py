"""Explanations of the figures of a reply and of the rows of the time ledger."""

from rdchat.inference.api.ledger_view import REPLY, Spent

SPEED = "Tokens written per second, after the first one. The time to read the prompt does not count."
RATIO = "The speed of this reply divided by the speed without drafting."
PLAIN = (
    "The expected speed without drafting at this context length, from steps of the model that rdchat timed between "
    "replies and during this one. ± is the error of these timings. "
    "A dash: too little was timed, or the speed of the computer changed."
)
TTFT = "Time from the request to the first token of the reply."
DECODE_TIME = "Time from the first token of the reply to the last one so far."

ACCEPTANCE = (
    "Acceptance along the chosen path: tokens kept, as a share of the tokens on the longest branch of each draft. "
    "The model checks the other branches too, so this is not a share of the tokens checked. "
    "It is shown once the branches had 20 tokens."
)
KEPT = "Drafted tokens kept per step, on average. The model itself adds one more token in each step."
TOKENS_PER_STEP = "Tokens written in each step of the model; 1 without drafting."
ROUNDS = "Steps of the model that checked a draft."
FROM_CHAT = "Kept tokens that were copied from earlier in this chat."
FROM_REPLIES = "Kept tokens that were copied from earlier replies."
FROM_DRAFTER = "Kept tokens that the drafter or the draft model proposed, or that the answer format forces."
EARLIER_REPLIES = "Memory for the earlier replies that drafts come from. Settings > General has a switch for them."
NODES = "Tokens checked per step, on average: all branches of the draft, and the token chosen before."
DROPPED_DRAFTS = "Drafts that were dropped because the drafter's scores were not finite."
HOST_SYNCS = "How often the processor waited for the device in a step."
LENGTHS = (
    "Steps with a draft by the number of drafted tokens they kept. The model itself adds one more token in each step."
)
POSITIONS = "Of the steps whose longest branch reached this position, the share that kept a token there."

TOKENS_WRITTEN = "Tokens of the reply, with the first and an end token, without those that a stop string cut off."
CONTEXT = "Tokens in the model's context: the prompt's, and the reply's so far."
PRECISION = (
    "The format of the weights in memory. On a CPU this is float32, also for a 4-bit model, because that is faster "
    "there. So its weights take more memory than its file takes on disk."
)
PEAK_MEMORY = "The most memory that MLX held during the reply."

EDITED = "You edited this text. The figures of the model's text are with the original reply."
TEMPERATURE = "How freely the model chose: 0 always takes the most likely token."

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
