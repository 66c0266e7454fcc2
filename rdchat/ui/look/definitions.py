"""Explains the figures of a reply, in the speed panel and in the reply's details."""

SPEED = (
    "Tokens written a second, after the first one: (tokens written - 1) / decode time. Reading the prompt is not part "
    "of it."
)
RATIO = "How many times as fast as plain decoding this reply is."
PLAIN = (
    "What the reply would be written at without drafting, from what a plain call of the model was measured to take at "
    "this length of context. It is measured while the app is idle, after the first reply, and corrected by the plain "
    "calls of later ones; behind ± is how far those lay from what was expected of them."
)
TTFT = "From the request until the first token of the reply is known."
DECODE_TIME = "From the first token of the reply to its last one so far."

ACCEPTANCE = "Drafted tokens that were accepted, of those that were offered along the chosen path."
TOKENS_PER_CALL = "Tokens written for each call of the model while decoding; 1 in plain decoding."
ROUNDS = "Calls of the model before which a drafter was asked; none in plain decoding."
NODES = "Tokens that a call of the model verified, the one it had chosen before included; padding does not count."
DROPPED_DRAFTS = "Drafts that did not count, since what drafted them gave scores that are not finite."
HOST_SYNCS = "Times the processor waited for the device, for each call of the model."
LENGTHS = (
    "Rounds by accepted length: drafted tokens that a round accepted. The one token that the model itself adds in each "
    "round is not counted."
)
POSITIONS = "Of the rounds that offered a token at this place in the draft, the share that accepted it."

TOKENS_WRITTEN = "Tokens of the reply: the first one and a final end token included, what a stop string cuts excluded."
CONTEXT = "Tokens in the model's context: the prompt's, and the reply's so far."
PEAK_MEMORY = "The most memory MLX held during the reply."

EDITED = "The text is yours; what was measured of the model's own is with the reply that it wrote."
TEMPERATURE = "How freely the model chose: 0 always takes the most likely token."
