"""What drafts for a model: published, or trained here."""
