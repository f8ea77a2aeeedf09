"""A recorded history of requests and answers between clients and a commit owner, which can be checked later and
elsewhere.

A history is a file of JSON Lines: a `header`, then events in the order of their times, then the `witness` of every
table (its final log), then a `footer`. All of it, with the meaning of every field, is in `events`; the JSON
Schema is `history.schema.json`.

    {"event":"header","schema":1,"clock":{"unit":"tick"},"subject":{"name":"x","version":"1"},"feature":"catalogManaged"}
    {"event":"invoke","at":1,"id":1,"client":"w1","table":"t","request":{"op":"commit","version":0,"attempt":"a"}}
    {"event":"ok","at":2,"id":1,"answer":{"outcome":"ratified","version":0}}
    {"event":"witness","table":"t","version":0,"attempt":"a"}
    {"event":"footer","counts":{"invoke":1,"ok":1,"fail":0,"info":0,"fault":0,"fs":0,"witness":1},"tables":{"t":1},"complete":true}

A file without a footer at its end is invalid. `files` writes a history as
it happens and reads one in bounded memory, `operations` pairs requests with their answers and rejects invalid
histories, `translation` is the one place where the interface's messages become events, and
`delta-commit-conformance check FILE` gives the verdict.
"""
