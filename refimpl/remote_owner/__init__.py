"""A commit owner on another host, through Unity Catalog's Delta API. `connection` sends requests, `owner` decides on
them."""
