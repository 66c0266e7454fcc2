"""The layouts in which others publish drafters; ours and Apple's are `drafter_folder`'s own."""

from rdchat.inference.drafting.folders.block_checkpoint import BLOCK
from rdchat.inference.drafting.folders.checkpoint import Checkpoint, DrafterFormat

FORMATS: tuple[DrafterFormat, ...] = (BLOCK,)


def format_of(checkpoint: Checkpoint) -> DrafterFormat | None:
    """Return a checkpoint's layout, by what it holds; None where it is none of these."""
    found = (form for form in FORMATS if form.matches(checkpoint.config, checkpoint.tensors.keys()))
    return next(found, None)
