"""What both processes need to speak Kubernetes.

Quantities, label selectors, Status errors, an API client, REST mapping from discovery, list-watch stores. Nothing here
knows of metrics or of scaling.
"""
