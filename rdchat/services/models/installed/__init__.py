"""Models on this machine: listing, deleting and verifying them, and dropped ones."""
