# The image of the metering agents: no Django, no database. `python -m metering gpu|efficiency|backfill|slurm|tokens|engines`.
# Build from the root of the project: docker build -f docker/agent.Dockerfile -t suanpan-agent .

# Python 3.11.16, by the digest of all its platforms, so that a build can be repeated. Both Dockerfiles name the same one; docker/README.md
# says how to find a newer one.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE} AS builder
WORKDIR /app

# Only what the agents import, from the same lock as everything else: an entry is a line that starts with a name and the
# indented lines of its hashes. docker/agent-packages.txt names them; a test keeps it complete.
COPY requirements.txt docker/agent-packages.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    awk -F '==' 'NR == FNR { wanted[$1] = 1; next } /^[^ ]/ { keep = ($1 in wanted) } keep' \
        agent-packages.txt requirements.txt > /tmp/requirements.txt \
    && python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --disable-pip-version-check --no-compile \
        --only-binary :all: --require-hashes -r /tmp/requirements.txt

# Half of the Kubernetes client is a second one, for asyncio, that the agents do not use. What is left is compiled on all cores.
RUN cd /opt/venv/lib/python3*/site-packages && rm -r kubernetes/aio && /opt/venv/bin/python -m compileall -qq -j 0 .

COPY pyproject.toml /sbom/
COPY tests/supply_chain.py /sbom/tests/
RUN python -P /sbom/tests/supply_chain.py sbom /sbom/sbom.cdx.json /tmp/requirements.txt

COPY metering metering
# Importing every command also proves that nothing else is needed.
RUN /opt/venv/bin/python -c "from metering.__main__ import COMMANDS, parser; [parser([name]) for name in COMMANDS]" \
    && /opt/venv/bin/python -m compileall -q metering


FROM ${BASE}
ARG BASE
LABEL org.opencontainers.image.title="Suanpan agent" \
      org.opencontainers.image.description="Meters GPU-hours, tokens and efficiency" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Fixed ids, so that volumes and cluster policies can name them. The code belongs to root: the process cannot change it.
RUN groupadd --gid 10001 suanpan \
    && useradd --uid 10001 --gid suanpan --no-create-home --home-dir /tmp --shell /usr/sbin/nologin suanpan
COPY --from=builder /opt/venv /opt/venv
COPY --from=builder /sbom/sbom.cdx.json /usr/share/suanpan/sbom.cdx.json
COPY --from=builder /app/metering /app/metering
WORKDIR /app
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "metering"]
CMD ["--help"]
