"""Any server that speaks Unity Catalog's Delta API, as a subject: `uc:URL?catalog=C&schema=S`.

The server is the commit owner; its clients are played by the adapter, in the way in which Delta's own clients work:
they stage, write version 0 at the place that the server gave them, publish, and tell the server of it.
UNITY_CATALOG.md#calls. The token is `$UC_TOKEN`.
"""
