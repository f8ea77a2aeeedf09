"""A commit owner on another host, through Unity Catalog's Delta API. `connection` sends requests, `calls`
interprets the answers, and `owner` implements `CommitOwner`."""
