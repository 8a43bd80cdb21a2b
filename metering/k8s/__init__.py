"""The meter of a Kubernetes cluster: who held which accelerators for how long, exact through crashes and outages.

`objects` reads what the API server sends, `api` asks it, `stream` lists and then watches. `store` keeps on disk every
hold and how far each stream was read, in one transaction with what is to be reported about it; `agent` joins them. The rules
of holds are not here: `metering.allocation`, `metering.requests`, `metering.accelerators`.
"""
