"""A process that attaches: says what it got as one line of JSON, then follows the words it reads on stdin."""

import json
import sys
from pathlib import Path

import psycopg
import redis

from billing.local.embedded import EmbeddedError, attach


def main() -> int:
    need = sys.argv[2].split(",") if len(sys.argv) > 2 else ["postgres", "broker"]
    try:
        services = attach(Path(sys.argv[1]), need=need)
    except EmbeddedError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    urls = {
        "database_owner_url": services.database_owner_url if "postgres" in need else "",
        "broker_url": services.broker_url if "broker" in need else "",
    }
    print(json.dumps({**urls, "started": services.started}), flush=True)
    for line in sys.stdin:
        print(json.dumps(obey(line.strip(), urls)), flush=True)
    services.release()
    return 0


def obey(word: str, urls: dict[str, str]) -> object:
    """`ping` asks the broker; anything else is SQL, whose first row comes back."""
    if word == "ping":
        with redis.Redis.from_url(urls["broker_url"]) as broker:
            return broker.ping()
    with psycopg.connect(urls["database_owner_url"]) as connection:
        cursor = connection.execute(word)
        return cursor.fetchone() if cursor.description else None


if __name__ == "__main__":
    sys.exit(main())
