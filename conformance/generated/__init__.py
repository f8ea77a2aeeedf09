"""Generated sequences of requests against a pure model, and rounds of concurrent clients. What they find is shrunk, and
can be replayed."""
