"""A real LiteLLM proxy reports to a real Suanpan: run on demand, see docs/gateways.md."""
