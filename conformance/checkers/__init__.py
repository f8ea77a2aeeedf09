"""Verdicts on histories: what contradicts the documents, and which two operations show it.

`check.check_file` and `check.check_events` judge a whole history. `rules` are the kinds of requirement, `log` is the
near-linear log checker, `watermark` the one of publication, `content` compares what versions say; `columns` is the
form in which a history is held for them, and `explanation` puts what they find into words.
"""
