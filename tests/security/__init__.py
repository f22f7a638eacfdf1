"""Tests of claims of docs/security.md that belong to no single package, and of its list of claims."""
