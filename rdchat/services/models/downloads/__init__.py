"""Downloads, and the hub account that they use."""
