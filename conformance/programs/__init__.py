"""Generated programs of steps, judged by the oracle, and rounds of concurrent clients. Their failures are shrunk, and
can be replayed."""
