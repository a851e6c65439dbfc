"""What users, programs and administrators ask of the gateway."""
