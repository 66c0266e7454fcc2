"""The layouts in which others publish drafters; ours and Apple's are `drafter_folder`'s own."""

from rdchat.inference.drafting.folders.block_checkpoint import BLOCK
from rdchat.inference.drafting.folders.checkpoint import Checkpoint, DrafterFormat
from rdchat.inference.drafting.folders.eagle3_checkpoint import EAGLE3

FORMATS: tuple[DrafterFormat, ...] = (BLOCK, EAGLE3)


def format_of(checkpoint: Checkpoint) -> DrafterFormat | None:
    """Return a checkpoint's layout, by what it holds; None where it is none of these."""
    found = (form for form in FORMATS if form.matches(checkpoint.config, checkpoint.tensors.keys()))
    return next(found, None)
