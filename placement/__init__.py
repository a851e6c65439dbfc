"""Which job runs where and when, and why not elsewhere. Pure: standard library and numpy, frozen values, time is an
argument.
"""
