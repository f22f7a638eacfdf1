"""Delegated authentication and authorization, and TLS, of the HTTPS servers of both processes.

tls             the serving certificate and the TLS settings of the listener
trust           the CAs of clients, from files and from the cluster
authentication  from a connection and its headers to a user
request_info    from a method and a path to the attributes of a request
authorization   from both to a decision, by SubjectAccessReview

Nothing here knows of metrics or HPAs, or writes a response: it raises StatusError.
"""
