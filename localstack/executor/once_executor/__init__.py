"""Runs Lambda functions as processes, with the semantics of Lambda.

plugin       the entry point for LocalStack
executor     LocalStack's interface
environment  an execution environment: init, invocations, time-outs, exits
session      the state of one process: its invocations and its answers
runtimeapi   the Lambda Runtime API over HTTP
process      a process and all its children
output       the output of a process

Only the first two depend on LocalStack.
"""
