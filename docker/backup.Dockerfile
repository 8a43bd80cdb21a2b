# The image of the jobs that back up and prove backups: the platform's with PostgreSQL's client programs.
# POSTGRES: the major version of your server. What Debian has is taken from there, others from PostgreSQL's own archive.
# docker build -f docker/backup.Dockerfile --build-arg PLATFORM=REGISTRY/suanpan:1.0.0 --build-arg POSTGRES=18 -t suanpan-backup docker

ARG PLATFORM=suanpan:1.0.0

FROM ${PLATFORM}
ARG POSTGRES=18
LABEL org.opencontainers.image.title="Suanpan backup" \
      org.opencontainers.image.description="Takes and proves backups of Suanpan" \
      org.opencontainers.image.version="1.0.0" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 0:0
# age encrypts what goes to storage that does not encrypt by itself (docs/operations/incidents.md).
RUN apt-get update \
    && if ! apt-cache show "postgresql-client-${POSTGRES}" > /dev/null 2>&1; then \
        apt-get install --yes --no-install-recommends postgresql-common \
        && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y; \
    fi \
    && apt-get install --yes --no-install-recommends "postgresql-client-${POSTGRES}" age \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
CMD ["manage", "backup", "--help"]
