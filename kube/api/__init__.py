"""Requests to the API server: the client, its configuration and errors, discovery, lists, and decoding of objects."""
