"""Identity and access: the tenant tree, roles, tokens and the audit trail."""
