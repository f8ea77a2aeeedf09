"""Runs a subject's ordinary code on a simulated host: every interleaving of its effects, every crash and power cut."""
