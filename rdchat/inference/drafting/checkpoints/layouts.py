"""The layouts in which others publish drafters; ours and Apple's are `drafter_folder`'s own."""

from rdchat.inference.drafting.checkpoints.block_layout import BLOCK
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout
from rdchat.inference.drafting.checkpoints.eagle3_layout import EAGLE3

LAYOUTS: tuple[Layout, ...] = (BLOCK, EAGLE3)


def layout_of(checkpoint: Checkpoint) -> Layout | None:
    """Return a checkpoint's layout, by what it holds; None where it is none of these."""
    found = (form for form in LAYOUTS if form.matches(checkpoint.config, checkpoint.tensors.keys()))
    return next(found, None)
