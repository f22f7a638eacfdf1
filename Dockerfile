# One image for both processes of milliscale. docs/releases.md says how to pin its base and compare two builds.
#
#     docker build -t REGISTRY/milliscale:X.Y.Z .
#     docker build --build-arg LOCK=requirements-clouds.lock -t REGISTRY/milliscale-clouds:X.Y.Z .
#     docker run milliscale milliscale-adapter serve --help
#     docker run milliscale milliscale-autoscaler run --help

# A release pins it: python:3.13-slim@sha256:...
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
# Modification times would be in the bytecode and in the wheel: with this, each build has the same files.
ENV SOURCE_DATE_EPOCH=315532800
# The environment has no pip of its own: the builder's pip fills it, and only the environment goes on.
RUN python -m venv --without-pip /opt/milliscale
# requirements-clouds.lock adds the libraries of sigv4, google and azure: docs/clouds.md.
ARG LOCK=requirements.lock
COPY requirements.lock requirements-clouds.lock requirements-build.lock ./
RUN pip --python /opt/milliscale/bin/python install --no-compile --no-cache-dir --require-hashes --only-binary :all: -r ${LOCK} \
    && pip install --no-compile --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY kube ./kube
COPY adapter ./adapter
COPY autoscaler ./autoscaler
COPY replay ./replay
COPY kubectl_milliscale ./kubectl_milliscale
COPY milliscale ./milliscale
COPY tools/slim_environment.py ./
# Files that no process reads are removed first, 51 of 143 MB. Bytecode is not compared with the sources, which do not change; -f:
# also where an installer has written some that is. The client of kubernetes_asyncio, which only kubeconfigs need, is generated:
# bytecode without docstrings takes the place of its sources (-b).
RUN pip wheel --no-cache-dir --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/milliscale/bin/python install --no-compile --no-cache-dir --no-index --no-deps --find-links /wheels milliscale \
    && python slim_environment.py /opt/milliscale/lib/python3.*/site-packages \
    && /opt/milliscale/bin/python -m compileall -qf --invalidation-mode unchecked-hash \
       -x kubernetes_asyncio/client/ /opt/milliscale/lib \
    && /opt/milliscale/bin/python -m compileall -qfb -o 2 --invalidation-mode unchecked-hash \
       /opt/milliscale/lib/python3.*/site-packages/kubernetes_asyncio/client \
    && find /opt/milliscale/lib -path '*/kubernetes_asyncio/client/*.py' -delete \
    && /opt/milliscale/bin/milliscale-adapter --version \
    && /opt/milliscale/bin/milliscale-autoscaler --version

FROM ${BASE}
LABEL org.opencontainers.image.title="milliscale" \
      org.opencontainers.image.description="Kubernetes scaling on Prometheus metrics: a metrics adapter and an HPA loop" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip
COPY --from=build /opt/milliscale /opt/milliscale
# Where prometheus-adapter's image has its executable, so that its chart can run this image.
RUN ln -s /opt/milliscale/bin/milliscale-adapter /adapter
# Not every container runtime sets HOME, and Python cannot find it for a user that /etc/passwd does not have.
ENV HOME=/ \
    PATH=/opt/milliscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Numeric, so that Kubernetes can see that it is not root.
USER 10001:10001
CMD ["milliscale-adapter", "--help"]
