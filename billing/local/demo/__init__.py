"""The demonstration: a made-up company's month, reported through the real doors, priced, closed and issued."""
