"""Tests of the conformance kit: its history format, its checkers, its models, its reports."""
