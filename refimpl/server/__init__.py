"""Our owner over HTTP: Unity Catalog's Delta API on a warehouse directory (extra `server`).

The server holds no state of its own: everything is in the owner's ledger. So several servers and local processes may
share a warehouse, and a killed server loses no acknowledged commit.

    answers             the owner's values in the API's shapes, which `refimpl.catalog.messages` has
    delta_api, catalog_api   the calls, as plain functions of a request's values
    application         routes, errors, limits, access: Starlette around the two
    serving             one process of uvicorn
"""
