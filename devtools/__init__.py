"""Tools for developing and trying the gateway: embedded servers, the process supervisor, real control planes."""
