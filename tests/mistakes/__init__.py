"""Usual mistakes, each with the one sentence that says what to change; docs/errors.md is made of them."""
