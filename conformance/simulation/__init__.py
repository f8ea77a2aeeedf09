"""Runs the reference's ordinary code on a simulated host: all interleavings, power cuts and lost answers."""
