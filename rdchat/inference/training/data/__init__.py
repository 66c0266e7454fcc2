"""Training data: conversations that the target writes, many at a time, stored in shards."""
