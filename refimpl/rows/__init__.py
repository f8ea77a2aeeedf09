"""Values: columns, conditions, rules, data files and deletion vectors."""
