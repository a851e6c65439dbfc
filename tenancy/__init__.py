"""Who you are and for whom you act: the tenant tree, roles, tokens and the audit trail."""
