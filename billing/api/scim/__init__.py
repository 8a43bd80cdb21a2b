"""SCIM 2.0: the identity provider makes, changes and switches off accounts, and says who is in which group."""
