"""The claims of docs/security.md."""
