"""The owner over HTTP: what the Delta API's calls answer, and what they leave behind."""
