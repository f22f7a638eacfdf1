"""Documents and their bytes: JSON, YAML and protobuf, chosen by Accept.

documents, resource_documents   lists of metric values, and of CPU and memory
protobuf                        the same as protobuf messages
tables                          the same as metav1.Table, for kubectl
encoding                        content negotiation and compression

Values come as typed data; nothing here queries anything or knows of connections.
"""
