"""Runs a subject's ordinary code on a simulated host: all interleavings of its effects, all crashes and power cuts."""
