"""The models window: installed models, the hub, downloads and drafters."""
