"""What an answer or a file may be: pure rules, in the order of the documents, without an implementation."""
