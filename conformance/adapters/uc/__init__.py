"""Any server that speaks Unity Catalog's Delta API, as a subject: `uc:URL?catalog=C&schema=S`.

The server is the commit owner. The adapter plays its clients, which work like Delta's own: they stage commits, write
version 0 at the location that the server returns, publish, and report the published version to the server
(UNITY_CATALOG.md#calls). The token is `$UC_TOKEN`.
"""
