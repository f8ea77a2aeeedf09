"""What a table may hold: types, column mapping, table features and properties."""
