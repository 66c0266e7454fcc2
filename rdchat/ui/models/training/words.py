"""What is said of a training: its kinds, its phases, and how long it takes."""

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.api.training import TrainingEstimate, TrainingOrder
from rdchat.ui.look.formatting import counted, file_size, memory

KIND_NAMES = {
    TrainedKind.RECURRENT: "Recurrent (recommended)",
    TrainedKind.EAGLE3: "EAGLE-3",
    TrainedKind.DSPARK: "DSpark (experimental)",
}
KIND_WORDS = {
    TrainedKind.RECURRENT: "A small network that reads the model's own state. Trains fastest; the drafter that comes "
    "with the default model is of this kind.",
    TrainedKind.EAGLE3: "One layer like those of the model, which also looks back at the text. Takes longer to train. "
    "Other programs can read it.",
    TrainedKind.DSPARK: "Drafts a block of tokens in one go. On the default model it has not yet learnt more than how "
    "frequent words are. Other programs can read it.",
}
PHASE_WORDS = {
    "data": "Writing answers to learn from",
    "prepare": "Reading the answers",
    "train": "Learning",
    "watch": "Measuring how often it is right",
    "evaluate": "Measuring the drafter",
    "write": "Saving the drafter",
    "done": "Saving the drafter",
    "compare": "Comparing it with the drafter you have",
}
STEPS = ("data", "prepare", "train", "watch", "evaluate", "compare")
GROUP_WORDS = {
    "explaining": "Explaining",
    "code": "Code",
    "story": "A story",
    "list": "A list",
    "summary": "A summary",
    "copy": "Copying",
    "all": "All",
}


def about(seconds: float) -> str:
    """Return a time to wait for, no more exact than it is known: `40 s`, `12 min`, `2 h 10 min`, `1 day 4 h`."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 10 * 60:
        hours, minutes = divmod(round(minutes / 5) * 5, 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    hours = round(minutes / 60)
    days, rest = divmod(hours, 24)
    if not days:
        return f"{hours} h"
    return f"{counted(days, 'day')} {rest} h" if rest else counted(days, "day")


def tokens_about(tokens: int) -> str:
    """Return `about 180,000 tokens`, in two significant figures."""
    digits = max(len(str(tokens)) - 2, 0)
    return f"about {round(tokens, -digits):,} tokens"


def amount(order: TrainingOrder) -> str:
    """Return how much is trained: `2 hours` or `1,000,000 tokens`."""
    if order.hours is not None:
        return f"{order.hours:g} {'hour' if order.hours == 1 else 'hours'}"
    return counted(order.tokens or 0, "token")


def estimate_rows(order: TrainingOrder, estimate: TrainingEstimate) -> list[tuple[str, str, str]]:
    """Return name, figure and explanation of what a training takes."""
    both, disk = estimate.memory_bytes + estimate.model_bytes, file_size(estimate.disk_bytes)
    exact = order.hours is not None
    return [
        ("Time", about(estimate.seconds) if exact else f"About {about(estimate.seconds)}", _TIME[exact]),
        ("Answers", tokens_about(estimate.tokens).capitalize(), "What the model writes for the drafter to learn from."),
        ("Disk", f"Up to {disk}", "Of training data, until the training is done or discarded."),
        (
            "Memory",
            f"Up to {memory(both)}",
            f"Beside rdchat's own: {memory(estimate.model_bytes)} of it is the model, which the training loads a "
            "second time.",
        ),
    ]


def estimate_line(estimate: TrainingEstimate) -> str:
    """Return the same in one line: `About 2 h, 410,000 tokens, up to 2.40 GB of disk and 5.20 GB of memory`."""
    both = memory(estimate.memory_bytes + estimate.model_bytes)
    tokens = tokens_about(estimate.tokens).removeprefix("about ")
    disk = file_size(estimate.disk_bytes)
    return f"About {about(estimate.seconds)}, {tokens}, up to {disk} of disk and {both} of memory."


_TIME = {
    True: "At most; pauses do not count.",
    False: "By what was just measured on this machine. It takes longer while you chat.",
}
LITTLE_TOKENS = 20_000
LITTLE = "That is little to learn from: expect no more than a first impression. Give it more time."
