"""Stories to watch step by step, and their page. Other packages create the stories."""
