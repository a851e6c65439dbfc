"""Pure decisions on a job's life, from the user's input to the objects on a cluster. `placement` decides which job runs
where.
"""
