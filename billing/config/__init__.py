"""Settings, services and entry points of the house."""
