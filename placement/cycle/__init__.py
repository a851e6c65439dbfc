"""One scheduling round over the whole queue: which job gets which place now, and which jobs have room kept for them."""
