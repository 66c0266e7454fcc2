"""Downloads as widgets see them, and the hub account that they use."""
