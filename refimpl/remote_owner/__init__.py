"""A commit owner on another host, through Unity Catalog's Delta API: `connection` sends, `owner` gives it a meaning."""
