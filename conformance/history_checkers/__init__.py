"""Verdicts on histories: contradictions to the documents, and the two operations that show each of them.

`check.check_file` and `check.check_events` judge a whole history and explain what they find. `rules` are the kinds of
requirement; `log` compares the content of versions and is the near-linear log checker, `watermark` is the checker of
publication; `columns` is their in-memory form of a history, `bounds` are their constraints, `breaches` their findings.
"""
