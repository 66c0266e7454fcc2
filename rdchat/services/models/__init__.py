"""What the models window stands on: models on this machine and on the hub, downloads, drafters and their training."""
