"""SCIM 2.0: the identity provider creates, changes and deactivates accounts, and manages groups."""
