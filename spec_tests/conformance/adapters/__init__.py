"""Tests of the adapters: transports, subject names, `smoke`, the page and its examples."""
