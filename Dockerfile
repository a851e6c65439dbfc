# syntax=docker/dockerfile:1
# One image for every process; the command says which one it is.
# Tag for people, digest for the machine. Dependabot brings newer ones; `--build-arg PYTHON_IMAGE=…` takes a mirror's.
ARG PYTHON_IMAGE=python:3.12.15-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258
FROM ${PYTHON_IMAGE} AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=/app/.venv
WORKDIR /app
COPY devtools/uv.txt ./
RUN pip install --no-cache-dir --require-hashes --only-binary :all: --requirement uv.txt && rm uv.txt
COPY pyproject.toml uv.lock ./
RUN --mount=type=cache,target=/root/.cache/uv uv sync --frozen --no-dev
COPY manage.py ./
COPY config config
COPY foundation foundation
COPY tenancy tenancy
COPY clusters clusters
COPY quotas quotas
COPY billing billing
COPY placement placement
COPY simulator simulator
COPY federation federation
COPY templates templates
COPY static static
# The processes may not write it, and would compile all this at each start.
RUN .venv/bin/python -m compileall -q config foundation tenancy clusters quotas billing placement simulator federation
# No secret is needed to collect static files.
RUN DATABASE_URL=postgresql://build@localhost/build .venv/bin/python manage.py collectstatic --noinput --verbosity 0

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 switchyard \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin switchyard \
    && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/switchyard-anchors
WORKDIR /app
COPY --from=build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SWITCHYARD_BIND=0.0.0.0:8000 SWITCHYARD_HEALTH_BIND=0.0.0.0:8001 SWITCHYARD_METRICS_BIND=0.0.0.0:8002 SWITCHYARD_HOME=/tmp \
    # A worker told to end gives its tasks ten seconds and then hands them back.
    REMAP_SIGTERM=SIGQUIT
USER 10001:10001
EXPOSE 8000 8001 8002
CMD ["gunicorn", "--config", "python:config.gunicorn"]
