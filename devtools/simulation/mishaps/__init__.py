"""What goes wrong: on clusters and networks, with processes and the database, and by strangers."""
