"""The requests of a catalog of tables, after Unity Catalog's API."""
