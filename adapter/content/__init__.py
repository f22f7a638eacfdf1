"""Documents and how they are encoded: JSON, YAML and protobuf, negotiated by Accept.

documents           lists of metric values
resource_documents  CPU and memory of pods and nodes; `tables` what kubectl prints of them
protobuf            both as Kubernetes' protobuf messages
encoding            negotiation and encoding
"""
