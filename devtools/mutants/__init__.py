"""Mutation tests of the pure engines: `make mutants` changes one token at a time and runs the tests that should notice."""
