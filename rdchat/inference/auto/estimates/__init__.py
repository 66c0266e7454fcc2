"""How far a target follows each kind of draft: estimates that are learnt, measured after a training, and kept."""
