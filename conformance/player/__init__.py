"""Stories that are watched step by step, and their page. What happens in them comes from elsewhere."""
