"""The commands of `python -m pricing`: they read files, call the pure packages, and write. No rules here."""
