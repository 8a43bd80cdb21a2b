"""The ASGI entry point of the budget check, which runs in one process beside the web workers."""

import os
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
django.setup()

from django.conf import settings  # noqa: E402 - Django has to be set up first

from billing.api.budget_check import BudgetCheck  # noqa: E402 - it has models
from billing.runtime.home import PROJECT  # noqa: E402

application = BudgetCheck(Path(settings.BUDGET_RESERVATION_DIR), project=PROJECT, environment=os.environ)
