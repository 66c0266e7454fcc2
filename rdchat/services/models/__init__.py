"""Services of the models window: models here and on the hub, downloads, drafters and their training."""
