"""Why attempts fail and what follows: what is seen, ordered rules, the diagnosis, the brake on retries, and nodes that
fail more than others.
"""
