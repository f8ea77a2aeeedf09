"""Layers whose operations nobody wrote down: generated sequences against a pure model, and real clients at the same
time. What they find is shrunk, and can be replayed."""
