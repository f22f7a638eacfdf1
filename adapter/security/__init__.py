"""Who asks, and whether they may.

tls             the server's certificate and what connections must offer
trust           the authorities that clients are believed by, read from files and from the cluster
authentication  from a connection and its headers to a user
request_info    from a path to what is asked of which resource
authorization   from both to yes or no, by SubjectAccessReview
"""
