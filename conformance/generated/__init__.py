"""Generated sequences of requests against a pure model, and rounds of concurrent clients. Their failures are shrunk,
and can be replayed."""
