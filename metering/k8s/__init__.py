"""Meter of a Kubernetes cluster: which pods held which accelerators for how long, exact through crashes and outages.

`objects` decodes what the API server sends, `api` sends the requests, `stream` lists and then watches. `store` keeps on disk
every allocation and how far each stream was read, in one transaction with the reports about it; `agent` joins them. The
rules of allocations are elsewhere: `metering.allocation`, `metering.requests`, `metering.accelerators`.
"""
