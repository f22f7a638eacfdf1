# The router, Debian's Prometheus, and its service discovery.
FROM docker.io/library/python:3.13-slim
COPY prometheus /bin/prometheus
COPY router.py service_discovery.py /
USER 65534:65534
CMD ["python", "-u", "/router.py"]
