from django.apps import AppConfig


class RatingConfig(AppConfig):
    name = "billing.rating"
    label = "rating"
    default_auto_field = "django.db.models.BigAutoField"
