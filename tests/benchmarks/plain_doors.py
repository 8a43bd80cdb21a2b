"""What ingest is compared with: the usual REST door (serializers, `bulk_create`), and one that only authenticates."""

from typing import Any, ClassVar

from django.db import models
from django.urls import path
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

CREATE = """CREATE TABLE plain_usage (
    uid bigserial PRIMARY KEY, id text NOT NULL, source text NOT NULL, time timestamptz NOT NULL, consumer text NOT NULL,
    model text NOT NULL, input_tokens bigint NOT NULL, cache_read_input_tokens bigint NOT NULL,
    cache_creation_input_tokens bigint NOT NULL, output_tokens bigint NOT NULL, reasoning_output_tokens bigint NOT NULL,
    UNIQUE (source, id))"""


class PlainUsage(models.Model):
    """A token record as an ordinary model."""

    uid = models.BigAutoField(primary_key=True)
    id = models.TextField()
    source = models.TextField()
    time = models.DateTimeField()
    consumer = models.TextField()
    model = models.TextField()
    input_tokens = models.BigIntegerField()
    cache_read_input_tokens = models.BigIntegerField()
    cache_creation_input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    reasoning_output_tokens = models.BigIntegerField()

    class Meta:
        app_label, managed, db_table = "benchmarks", False, "plain_usage"


class PlainSerializer(serializers.ModelSerializer[PlainUsage]):
    class Meta:
        model = PlainUsage
        exclude = ("uid",)


class PlainDoor(APIView):
    permission_classes: ClassVar = [IsAuthenticated]

    def post(self, request: Request) -> Response:
        """Validate with a serializer, insert what is new."""
        serializer = PlainSerializer(data=request.data, many=True)
        serializer.is_valid(raise_exception=True)
        rows: list[Any] = [PlainUsage(**row) for row in serializer.validated_data]
        PlainUsage.objects.bulk_create(rows, ignore_conflicts=True)
        return Response({"accepted": len(rows)})


class EmptyDoor(APIView):
    permission_classes: ClassVar = [IsAuthenticated]

    def post(self, request: Request) -> Response:
        """Authenticate, and nothing else."""
        return Response({"accepted": 0})


urlpatterns = [path("api/v1/plain", PlainDoor.as_view()), path("api/v1/empty", EmptyDoor.as_view())]
