"""Our owner over HTTP: Unity Catalog's Delta API on a warehouse directory (extra `server`).

The server holds no state of its own. Everything is in the owner's ledger, so several servers and local processes may
share a warehouse, and one that is killed loses nothing that it acknowledged.

    messages, answers   the wire's shapes, to and from the owner's values
    delta_api, legacy   what the calls mean: plain functions of a request's values
    application         routes, errors, limits, access: Starlette around the two
    serving             one process of uvicorn
"""
