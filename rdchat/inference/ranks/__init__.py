"""A model over several Macs, the ranks of a ring: rank 0 has the engine, the others repeat its network's calls."""
