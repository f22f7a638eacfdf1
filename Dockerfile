# One image for both processes of milliscale. `docker build -t REGISTRY/milliscale:0.1.0 .`
#
#     docker run milliscale milliscale-adapter serve --help
#     docker run milliscale milliscale-autoscaler run --help

FROM python:3.13-slim AS build
WORKDIR /src
# The environment has no pip of its own: the builder's pip fills it, and only the environment goes on.
RUN python -m venv --without-pip /opt/milliscale
COPY requirements.lock ./
RUN pip --python /opt/milliscale/bin/python install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY kube ./kube
COPY adapter ./adapter
COPY autoscaler ./autoscaler
COPY replay ./replay
COPY kubectl_milliscale ./kubectl_milliscale
RUN pip --python /opt/milliscale/bin/python install --no-cache-dir --no-deps . \
    && /opt/milliscale/bin/milliscale-adapter --version \
    && /opt/milliscale/bin/milliscale-autoscaler --version

FROM python:3.13-slim
LABEL org.opencontainers.image.title="milliscale" \
      org.opencontainers.image.description="Kubernetes scaling on Prometheus metrics: a metrics adapter and an HPA loop" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip
COPY --from=build /opt/milliscale /opt/milliscale
# Where prometheus-adapter's image has its executable, so that its chart can run this image.
RUN ln -s /opt/milliscale/bin/milliscale-adapter /adapter
ENV PATH=/opt/milliscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, so that Kubernetes can see that it is not root.
USER 10001:10001
CMD ["milliscale-adapter", "--help"]
