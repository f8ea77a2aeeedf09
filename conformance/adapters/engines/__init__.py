"""Delta engines that people use, as clients under test: one module for each."""
