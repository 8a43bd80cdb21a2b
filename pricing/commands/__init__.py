"""Commands of `python -m pricing`: read files, call the pure packages, write. No pricing rules here."""
