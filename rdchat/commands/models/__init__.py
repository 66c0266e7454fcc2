"""`rdchat models`: lists, finds, downloads, verifies and deletes models, and stores the hub's token."""
