"""Delegated authentication and authorization, and TLS, of the HTTPS servers of both processes.

tls             the serving certificate and the TLS settings of the listener
trust           the CAs of clients, from files and from the cluster
authentication  maps a connection and its headers to a user
request_info    maps a method and a path to the attributes of a request
authorization   decides on user and attributes, by SubjectAccessReview

Metrics and HPAs do not belong here. Nothing here writes a response: errors are StatusErrors.
"""
