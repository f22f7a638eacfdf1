"""Documents and their bytes: JSON, YAML and protobuf, chosen by Accept.

values      metric values in integer milli-units, CPU and memory; their documents, and tables for kubectl
protobuf    the same as protobuf messages
encoding    content negotiation and compression

The input is typed data. Queries and connections do not belong here.
"""
