"""Pure decisions about roles, scopes and tenant paths."""
