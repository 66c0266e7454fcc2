"""Explains the figures of a reply, in the speed panel and in the reply's details."""

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
