# Debian's Prometheus, which is linked with the C library.
FROM docker.io/library/python:3.13-slim
COPY prometheus /bin/prometheus
USER 65534:65534
ENTRYPOINT ["/bin/prometheus"]
