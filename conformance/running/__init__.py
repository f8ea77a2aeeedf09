"""A run: which cases there are, the processes that run them, and the verdict that follows."""
