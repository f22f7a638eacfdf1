"""Values of the Kubernetes API, and the messages of their validation."""
