"""Everything on this machine that rdchat can run."""
