"""Endpoint of the release that answers, and its database."""

from typing import Any

from django.db import connection
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.parameters import Endpoint
from metering import __version__
from metering.records import LATER_FIELDS


class Version(serializers.Serializer[Any]):
    """Release of Suanpan, version of the server of its ledger, and accepted optional fields of allocations, which an agent
    omits for a release that does not name them.
    """

    version = serializers.CharField()
    postgresql = serializers.CharField()
    optional_fields = serializers.ListField(child=serializers.CharField())


class VersionEndpoint(Endpoint):
    """Version, for signed-in people and tokens of any scope: strangers must not learn what a release lacks."""

    @extend_schema(operation_id="version", responses={200: Version})
    def get(self, request: Request) -> Response:
        """Return the release that answers."""
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            (server,) = cursor.fetchone()
        return Response({"version": __version__, "postgresql": server.split()[0], "optional_fields": LATER_FIELDS})
