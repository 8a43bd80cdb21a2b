"""The commands of `python -m pricing`: they read files, call the pure rooms, and write. No rules here."""
