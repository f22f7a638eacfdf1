"""Documents and their bytes: JSON, YAML and protobuf, chosen by Accept.

documents   metric values, CPU and memory, and tables of these for kubectl
protobuf    the same as protobuf messages
encoding    content negotiation and compression

Values come as typed data; nothing here queries anything or knows of connections.
"""
