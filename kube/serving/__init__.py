"""The HTTP servers of both processes: the listener with its limits on connections, and health checks.

Nothing here knows what is served: a handler returns the response to each request.
"""
