"""Models on this machine: what is known of them, removing and verifying them, and what is dropped on a window."""
