"""Delegated authentication and authorization, and TLS.

tls             the serving certificate, and what connections must offer
trust           the CAs of client certificates, read from files and from the cluster
authentication  from a certificate and headers to a user
request_info    from a path to the attributes of a request
authorization   from both to yes or no, by SubjectAccessReview
"""
