"""Runs Lambda functions as processes, with the semantics of Lambda.

plugin       how LocalStack finds it
executor     LocalStack's interface
environment  an execution environment: init, invocations, time-outs, exits
session      the conversation with one process: what it was given, what it said
runtimeapi   the Lambda Runtime API over HTTP
process      a process and everything it starts
output       what a process prints

Only the first two know LocalStack.
"""
