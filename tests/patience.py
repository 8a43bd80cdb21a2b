"""How long Hypothesis may take to make up its cases: on a busy machine a slow example says nothing about the code."""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
