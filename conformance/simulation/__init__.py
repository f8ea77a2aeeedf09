"""A subject's ordinary code under a simulated host: every interleaving of its effects, every crash, power loss."""
