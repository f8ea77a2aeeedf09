"""Verdicts on histories: what contradicts the documents, and which two operations show it.

`check.check_file` and `check.check_events` judge a whole history and explain what they find. `rules` are the kinds of
requirement; `log` compares what versions say and is the near-linear log checker, `watermark` the one of publication;
`columns` is the form in which a history is held for them, `bounds` are their constraints, `breaches` what they find.
"""
