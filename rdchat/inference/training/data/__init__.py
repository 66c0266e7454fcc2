"""What a drafter is trained on: conversations that the target writes, many at a time, kept in shards."""
