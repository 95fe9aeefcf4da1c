# How long a test waits for a condition, in seconds, as `patience` in localstack/lib.sh. It ends only what hangs, and is
# the longest time-out of a function.
PATIENCE = 900
