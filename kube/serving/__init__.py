"""HTTP servers: what the adapter's and the autoscaler's have in common.

options, flags        the address, certificates and limits of an HTTPS server, and its flags
listener, connection  accept connections, limit their number and what one may cost the others
delegated             the serving certificate, authentication and authorization, as one object
local                 whether a request comes from inside the pod
health                /healthz, /livez and /readyz

Nothing here knows what is served: a handler returns the response to each request.
"""
