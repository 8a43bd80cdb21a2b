"""Sealed months: usage of closed months as files elsewhere, proven equal to the ledger."""
