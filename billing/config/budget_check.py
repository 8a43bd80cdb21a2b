"""The ASGI entry point of the budget check, which runs in one process beside the web workers."""

import os
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.config.settings")
django.setup()

from django.conf import settings  # noqa: E402 - Django has to be set up first

from billing.api.budget_check import BudgetCheck  # noqa: E402 - it has models
from billing.config.home import PROJECT  # noqa: E402

application = BudgetCheck(Path(settings.BUDGET_HOLDS), project=PROJECT, environment=os.environ)
