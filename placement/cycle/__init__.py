"""One scheduling round over the whole queue: who gets which place now, and for whom room is kept."""
