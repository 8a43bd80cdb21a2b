"""Demonstration: a made-up company's month, reported through the real endpoints, priced, closed and issued."""
