"""Which release answers, and on what."""

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
    """The release of Suanpan, the version of the server that keeps its ledger, and optional fields of allocations that it
    takes, which an agent leaves out before a release that does not name them.
    """

    version = serializers.CharField()
    postgresql = serializers.CharField()
    optional_fields = serializers.ListField(child=serializers.CharField())


class VersionEndpoint(Endpoint):
    """For whoever is signed in or has a token of any scope; what a release lacks is nobody else's to know."""

    @extend_schema(operation_id="version", responses={200: Version})
    def get(self, request: Request) -> Response:
        """The release that answers."""
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            (server,) = cursor.fetchone()
        return Response({"version": __version__, "postgresql": server.split()[0], "optional_fields": LATER_FIELDS})
