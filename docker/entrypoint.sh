#!/bin/sh
# Starts one part of Suanpan: web, counter, worker, scheduler, migrate, or any command of manage.py.
set -eu

# Without these the parts would look for servers inside their own container, or sign with a key each of its own.
for name in DATABASE_URL BROKER_URL SECRET_KEY; do
    eval "value=\${$name:-}"
    if [ -z "$value" ]; then
        echo "error: $name is not set" >&2
        exit 2
    fi
done

part=${1:-web}
[ "$#" -eq 0 ] || shift
case "$part" in
    web)
        export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-2}"  # else every thread keeps what its largest body needed
        exec python -m billing.settings.serve --host 0.0.0.0 --port 8000 --log-level info "$@"
        ;;
    counter)
        exec python manage.py budget_counter --follow "$@"
        ;;
    worker)
        exec celery -A billing.settings.celery worker --loglevel INFO --concurrency "${WORKER_PROCESSES:-2}" "$@"
        ;;
    scheduler)
        # The schedule is short and made again from the settings, so its file may vanish with the container.
        exec celery -A billing.settings.celery beat --loglevel INFO --schedule /tmp/celerybeat-schedule "$@"
        ;;
    migrate)
        exec python manage.py migrate --no-input "$@"
        ;;
    manage)
        exec python manage.py "$@"
        ;;
    *)
        echo "error: $part is none of web, counter, worker, scheduler, migrate, manage" >&2
        exit 2
        ;;
esac
