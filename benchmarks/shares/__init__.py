"""How fairly turns are given in virtual time: `make bench-shares`."""
