"""Which job runs where and when, and the life of each job."""
