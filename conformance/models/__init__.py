"""The kit's own owner and client: short, correct, readable copies of what the documents describe, to learn from, to
test clients against, and to break on purpose."""
